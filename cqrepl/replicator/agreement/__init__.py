"""The checks of two hosts before any excerpt moves: is it one queue, and what do both hold?"""

"""Coverage-guided fuzzing of everything that bytes from outside can reach.

target             a function that takes any bytes and fails only where there is a defect
corpus             what a target starts from: the golden vectors, cut to a few KiB
child              one process, one target, libFuzzer in it; ends at the first finding
campaign           the targets one after the other, and what came of each
python -m tests.fuzz --seconds 600
"""

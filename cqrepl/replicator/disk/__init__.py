"""What has come to the disk, behind the stream, and what a power cut may have taken of it."""

"""Queues in Spark; needs the extra `spark`, but for `ranges`, which plans what tasks read."""

"""What threads have been: their checkpoints, read without running a graph."""

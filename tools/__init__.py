"""What builds and checks the project, and is not installed with it."""

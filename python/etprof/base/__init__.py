"""What all parts stand on: how strangers' files are opened and read, and what a name may be."""

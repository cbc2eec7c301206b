# src/coord: see README.md in this folder.

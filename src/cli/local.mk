# src/cli: see README.md in this folder.

# src/passes: see README.md in this folder.

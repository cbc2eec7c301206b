# src/collective: see README.md in this folder.

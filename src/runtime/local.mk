# src/runtime: see README.md in this folder.

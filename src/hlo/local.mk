# src/hlo: see README.md in this folder.

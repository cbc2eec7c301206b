# src/cpu: see README.md in this folder.

# src/pjrt: see README.md in this folder.

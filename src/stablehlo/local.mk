# src/stablehlo: see README.md in this folder.

# tests of src/stablehlo

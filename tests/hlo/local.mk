# tests of src/hlo

# tests of src/coord

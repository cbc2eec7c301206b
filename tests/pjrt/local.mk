# tests of src/pjrt

# tests of src/buffer

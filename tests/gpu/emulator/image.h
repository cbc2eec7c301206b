/* tests/gpu/emulator/image.h -- what stands for a device's machine code: PTX in a form that only the emulator reads,
 * for one kind of device.  It begins as an ELF file does, tells its size, and has a checksum. */
#ifndef WEFT_EMU_IMAGE_H
#define WEFT_EMU_IMAGE_H

#include <stdbool.h>
#include <stddef.h>

/* Machine code of `ptx`, malloc'd, for devices of compute capability `sm`.  NULL: the PTX is malformed or for newer
 * devices, or there is no memory; `error` says which. */
void *emu_image_make(const char *ptx, int sm, size_t *out_size, char *error, size_t error_size);

bool emu_image_is(const void *image); /* begins as an ELF file does */
/* The PTX of the image, malloc'd.  NULL: the image is damaged; `error` says how.  *out_sm: for which devices the
 * image is; 0: it is not the emulator's. */
char *emu_image_open(const void *image, int *out_sm, char *error, size_t error_size);

#endif

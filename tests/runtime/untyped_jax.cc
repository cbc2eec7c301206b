// Custom-call targets of the API versions before the typed FFI, for tests/runtime/ffi_jax.py.  As in a library that brings XLA's
// custom_call_status.cc along, the status is filled here: XLA keeps the message of a failure in an optional string.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>

struct Status {
  std::optional<std::string> message;
};

extern "C" {

// f32[6] -> f32[6]
void untyped_twice(void* out, const void** in) {
  for (int i = 0; i < 6; i++) static_cast<float*>(out)[i] = 2 * static_cast<const float*>(in[0])[i];
}

// f32[6], s32[] -> (f32[6], s32[])
void untyped_both(void* out, const void** in) {
  void** outs = static_cast<void**>(out);
  const int32_t n = *static_cast<const int32_t*>(in[1]);
  for (int i = 0; i < 6; i++) static_cast<float*>(outs[0])[i] = static_cast<const float*>(in[0])[i] + n;
  *static_cast<int32_t*>(outs[1]) = n + 1;
}

// f32[6] -> f32[6], fails where the first element is negative: by a short message, or below -1 by one that is allocated
static void HalveOrFail(void* out, const void** in, Status* status) {
  const float* x = static_cast<const float*>(in[0]);
  if (x[0] < 0) {
    status->message = x[0] < -1 ? std::string(600, 'm') + "." : "negative";
    return;
  }
  for (int i = 0; i < 6; i++) static_cast<float*>(out)[i] = x[i] / 2;
}

void untyped_status(void* out, const void** in, Status* status) { HalveOrFail(out, in, status); }

// u8[32]: the opaque bytes, and their number
void untyped_opaque(void* out, const void** in, const char* opaque, size_t opaque_len, Status* status) {
  std::memset(out, 0, 32);
  if (opaque_len > 31) {
    status->message = "too long";
    return;
  }
  static_cast<uint8_t*>(out)[0] = static_cast<uint8_t>(opaque_len);
  std::memcpy(static_cast<uint8_t*>(out) + 1, opaque, opaque_len);
}

void untyped_unified(void* out, const void** in, const char*, size_t, Status* status) { HalveOrFail(out, in, status); }
}

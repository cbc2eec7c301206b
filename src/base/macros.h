/* base/macros.h -- compiler attributes and small helpers that every module uses. */
#ifndef WEFT_BASE_MACROS_H
#define WEFT_BASE_MACROS_H

#include <stddef.h>
#include <stdint.h>

#define WEFT_NODISCARD __attribute__((warn_unused_result))
#define WEFT_PRINTF(fmt_index, first_arg) __attribute__((format(printf, fmt_index, first_arg)))
#define WEFT_LIKELY(x) __builtin_expect(!!(x), 1)
#define WEFT_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define WEFT_UNUSED __attribute__((unused))
#define WEFT_EXPORT __attribute__((visibility("default")))

/* The sanitizers of this build: gcc announces them by macros, clang 19 by features. */
#if defined __has_feature
#if __has_feature(address_sanitizer)
#define WEFT_HAS_ASAN
#endif
#if __has_feature(thread_sanitizer)
#define WEFT_HAS_TSAN
#endif
#endif
#if defined __SANITIZE_ADDRESS__ && !defined WEFT_HAS_ASAN
#define WEFT_HAS_ASAN
#endif
#if defined __SANITIZE_THREAD__ && !defined WEFT_HAS_TSAN
#define WEFT_HAS_TSAN
#endif

/* A public header puts the declarations that libweft exports between these two.  They get C linkage and are visible
 * outside the library, although all of Weft is compiled with -fvisibility=hidden.  There is no other list of
 * exported symbols. */
#ifdef __cplusplus
#define WEFT_PUBLIC_BEGIN _Pragma("GCC visibility push(default)") extern "C" {
#define WEFT_PUBLIC_END } _Pragma("GCC visibility pop")
#else
#define WEFT_PUBLIC_BEGIN _Pragma("GCC visibility push(default)")
#define WEFT_PUBLIC_END _Pragma("GCC visibility pop")
#endif

/* The text of a number that a macro stands for. */
#define WEFT_TEXT(macro) WEFT_TEXT_OF(macro)
#define WEFT_TEXT_OF(number) #number

#define WEFT_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define WEFT_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))
#define WEFT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define WEFT_MAX(a, b) ((a) > (b) ? (a) : (b))

/* Rounds x up to a multiple of the power of two `align`; the caller knows that it does not overflow. */
#define WEFT_ALIGN_UP(x, align) (((x) + (align) - 1) & ~((__typeof__(x))(align) - 1))

/* A local declared `WEFT_AUTO(T) x = NULL;` is destroyed on every way out of its block.  A type allows it with
 * WEFT_DEFINE_AUTO(T, destructor); the destructor is not called for NULL. */
#define WEFT_AUTO(type) __attribute__((cleanup(weft_auto_##type))) type *
#define WEFT_DEFINE_AUTO(type, destroy)                            \
  static inline WEFT_UNUSED void weft_auto_##type(type **location) \
  {                                                                \
    if (*location) destroy(*location);                             \
  }

/* The greatest common divisor, never negative; that of 0 and b is |b|. */
static inline WEFT_UNUSED int64_t weft_gcd(int64_t a, int64_t b)
{
  while (b) {
    int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a < 0 ? -a : a;
}

/* Moves the pointer out of `lvalue`, which becomes NULL. */
#define WEFT_MOVE(lvalue)                \
  ({                                     \
    __typeof__(lvalue) moved_ = (lvalue); \
    (lvalue) = NULL;                     \
    moved_;                              \
  })

/* WEFT_AUTO_STR declares a malloc'd char * that is freed on every way out of its block. */
WEFT_PUBLIC_BEGIN
void weft_auto_free_char(char **location);
WEFT_PUBLIC_END
#define WEFT_AUTO_STR __attribute__((cleanup(weft_auto_free_char))) char *

#endif

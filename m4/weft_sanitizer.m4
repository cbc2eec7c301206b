# WEFT_SANITIZER(NAME, KIND): --enable-NAME builds with -fsanitize=KIND.
AC_DEFUN([WEFT_SANITIZER], [
  AC_ARG_ENABLE([$1], [AS_HELP_STRING([--enable-$1], [build with -fsanitize=$2])], [], [enable_$1=no])
  AS_IF([test "x$enable_$1" != xno], [
    AX_CHECK_LINK_FLAG([-fsanitize=$2], [], [AC_MSG_ERROR([no -fsanitize=$2 in this toolchain])])
    SAN_CFLAGS="$SAN_CFLAGS -fsanitize=$2 -fno-sanitize-recover=all -fno-omit-frame-pointer"])
  AC_SUBST([SAN_CFLAGS])])

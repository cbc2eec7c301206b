# WEFT_INSIDE: sets INSIDE_LIBS, what the plugin and the command are linked with, INSIDE_JOB_LIBS, the
# same for libweft, and INSIDE_RUN_LIBS, the same for libweft_runtime: LLVM, and
# those libraries of which other software in the process may show another version to all (TensorFlow shows zlib, zstd and all of
# BoringSSL), as archives where they are there; their names are local in the result.  OpenBLAS stays shared: it is large, and no
# framework shows one (tests/jax/frameworks_test.py looks).  Debian's archive of nghttp2 is not position independent, and nobody shows
# an nghttp2.  hwloc, which TensorFlow shows too, is opened at run time (src/cpu/hwloc.c).
# Sets weft_inside: the names of those whose archives are linked.
AC_DEFUN([WEFT_INSIDE], [
  AC_REQUIRE([WEFT_LLVM])
  INSIDE_LIBS=" $LLVM_LIBS $BLAS_LIBS $JOB_LIBS "
  INSIDE_JOB_LIBS=" $JOB_LIBS "
  INSIDE_RUN_LIBS=" $RUN_LIBS "
  weft_inside=
  weft_save_LIBS=$LIBS weft_save_CFLAGS=$CFLAGS
  # Each with a function of it that is used.  An archive whose code is not position independent does not link.
  for weft_used in nghttp2=nghttp2_session_client_new protobuf-c=protobuf_c_message_unpack z=deflate \
      zstd=ZSTD_compress2 ssl=SSL_CTX_new; do
    weft_name=${weft_used%%=*}
    AC_MSG_CHECKING([whether a shared object can hold the archive of lib$weft_name])
    AS_CASE([$weft_name], [ssl], [weft_more=-l:libcrypto.a], [weft_more=])
    LIBS="-shared -Wl,--no-undefined -Wl,--exclude-libs,ALL -Wl,-u,${weft_used#*=} -l:lib$weft_name.a $weft_more $weft_save_LIBS"
    CFLAGS="$weft_save_CFLAGS -fPIC"
    AC_LINK_IFELSE([AC_LANG_SOURCE([[int weft_probe;]])],
      [AC_MSG_RESULT([yes])
       weft_inside="$weft_inside $weft_name"
       # An archive of libssl beside a shared libcrypto would be two OpenSSLs.
       weft_sed="s/ -l$weft_name / -l:lib$weft_name.a /g"
       AS_IF([test $weft_name = ssl], [weft_sed="$weft_sed; s/ -lcrypto / -l:libcrypto.a /g"])
       INSIDE_LIBS=`AS_ECHO(["$INSIDE_LIBS"]) | $SED "$weft_sed"`
       INSIDE_JOB_LIBS=`AS_ECHO(["$INSIDE_JOB_LIBS"]) | $SED "$weft_sed"`
       INSIDE_RUN_LIBS=`AS_ECHO(["$INSIDE_RUN_LIBS"]) | $SED "$weft_sed"`],
      [AC_MSG_RESULT([no])])
  done
  LIBS=$weft_save_LIBS CFLAGS=$weft_save_CFLAGS
  AC_SUBST([INSIDE_LIBS])
  AC_SUBST([INSIDE_JOB_LIBS])
  AC_SUBST([INSIDE_RUN_LIBS])
])

# WEFT_LLVM_CONFIG: finds llvm-config and sets LLVM_VERSION and with_llvm, what the caller asks for.  Needs no compiler.
AC_DEFUN([WEFT_LLVM_CONFIG], [
  # The newest llvm-config found, or the one named by LLVM_CONFIG.
  AC_ARG_VAR([LLVM_CONFIG], [llvm-config of the LLVM to use (16 or newer)])
  AC_ARG_WITH([llvm], [AS_HELP_STRING([--with-llvm=static|shared],
    [how the plugin and the command are linked with LLVM (default: static where its archives are there)])], [], [with_llvm=auto])
  AS_CASE([$with_llvm], [auto|static|shared], [], [AC_MSG_ERROR([--with-llvm=$with_llvm: expected static or shared])])
  AS_IF([test -n "$LLVM_CONFIG"], [],
    [AC_PATH_PROGS([LLVM_CONFIG], [llvm-config-20 llvm-config-19 llvm-config-18 llvm-config-17 llvm-config-16 llvm-config])])
  AS_IF([test -z "$LLVM_CONFIG"], [AC_MSG_ERROR([llvm-config not found (Debian: llvm-19-dev)])])
  LLVM_VERSION=`$LLVM_CONFIG --version 2>/dev/null`
  AS_CASE([$LLVM_VERSION], [@<:@0-9@:>@*.*], [],
    [AC_MSG_ERROR([LLVM_CONFIG=$LLVM_CONFIG is no llvm-config: it does not say its version])])
  AS_IF([test "${LLVM_VERSION%%.*}" -lt 16], [AC_MSG_ERROR([LLVM $LLVM_VERSION of $LLVM_CONFIG is older than 16])])
])
# WEFT_LLVM: links with LLVM and sets
#   LLVM_CPPFLAGS
#   LLVM_LIBS       for what is installed: static where the archives are there, so that no other LLVM of the process can take the
#                   place of Weft's (TensorFlow shows its names to all); else shared
#   LLVM_TEST_LIBS  for the tests and benchmarks, some hundred programs: shared where it is there, since that links faster
#   weft_llvm_link  static or shared, and weft_llvm_why: why it is shared
AC_DEFUN([WEFT_LLVM], [
  AC_REQUIRE([WEFT_LLVM_CONFIG])
  # -isystem: its headers are not ours to keep free of warnings.
  LLVM_CPPFLAGS="-isystem `$LLVM_CONFIG --includedir`"

  weft_llvm_components="core analysis bitwriter orcjit passes native"
  # The back end for NVIDIA's GPUs, where this LLVM has it: the platform "cuda" compiles with it.
  weft_llvm_nvptx=no
  AS_CASE([" `$LLVM_CONFIG --components 2>/dev/null` "], [*" nvptx "*], [
    weft_llvm_nvptx=yes
    weft_llvm_components="$weft_llvm_components nvptx"
    AC_DEFINE([HAVE_LLVM_NVPTX], [1], [LLVM has a back end for NVIDIA's GPUs])])
  weft_llvm_dir="-L`$LLVM_CONFIG --libdir`"
  weft_llvm_shared=`$LLVM_CONFIG --libs --link-shared 2>/dev/null`
  WEFT_LLVM_LINKS([weft_llvm_has_shared], [$weft_llvm_dir $weft_llvm_shared])
  weft_llvm_link=shared weft_llvm_why="--with-llvm=shared"
  AS_IF([test "x$with_llvm" != xshared], [
    weft_llvm_why="its archives do not link; config.log has the linker's words"
    weft_llvm_static="`$LLVM_CONFIG --libs --link-static $weft_llvm_components 2>/dev/null`"
    # Which system libraries the archives need depends on how LLVM was built; --system-libs also names those of parts that are not
    # used here (z3, libxml2), whose development packages need not be there.
    AS_IF([test -n "$weft_llvm_static"], [for weft_libs in "" "-lz" "-lz -lzstd" "`$LLVM_CONFIG --system-libs --link-static 2>/dev/null`"; do
      WEFT_LLVM_LINKS([weft_llvm_has_static], [$weft_llvm_dir $weft_llvm_static $weft_libs -lstdc++])
      AS_IF([test $weft_llvm_has_static = yes], [
        weft_llvm_link=static
        LLVM_LIBS="$weft_llvm_dir $weft_llvm_static $weft_libs -lstdc++"
        break])
    done])])
  AS_IF([test "x$with_llvm" = xstatic && test $weft_llvm_link = shared],
    [AC_MSG_ERROR([--with-llvm=static: the archives of $LLVM_CONFIG do not link; config.log has the linker's words (Debian: llvm-19-dev libzstd-dev zlib1g-dev)])])
  AS_IF([test $weft_llvm_has_shared = yes], [LLVM_TEST_LIBS="$weft_llvm_dir $weft_llvm_shared"], [LLVM_TEST_LIBS=$LLVM_LIBS])
  AS_IF([test $weft_llvm_link = shared], [LLVM_LIBS=$LLVM_TEST_LIBS])
  AS_IF([test -z "$LLVM_LIBS"], [AC_MSG_ERROR([no program links with LLVM $LLVM_VERSION of $LLVM_CONFIG; config.log has the linker's words])])
  AC_SUBST([LLVM_CPPFLAGS])
  AC_SUBST([LLVM_TEST_LIBS])
  AC_DEFINE_UNQUOTED([WEFT_LLVM_VERSION], ["$LLVM_VERSION"], [LLVM this was built with])
])

# WEFT_LLVM_LINKS(VARIABLE, LIBRARIES): yes where a program that compiles and runs code links with LIBRARIES, else no.
AC_DEFUN([WEFT_LLVM_LINKS], [
  AC_MSG_CHECKING([whether LLVM links: m4_if([$1], [weft_llvm_has_shared], [shared], [static, with "$weft_libs"])])
  weft_save_LIBS=$LIBS weft_save_CPPFLAGS=$CPPFLAGS
  LIBS="$2 $LIBS" CPPFLAGS="$CPPFLAGS $LLVM_CPPFLAGS"
  AC_LINK_IFELSE([AC_LANG_PROGRAM([[
    #include <llvm-c/BitWriter.h>
    #include <llvm-c/Core.h>
    #include <llvm-c/LLJIT.h>
    #include <llvm-c/Target.h>
    #include <llvm-c/Transforms/PassBuilder.h>]], [[
    LLVMOrcLLJITRef jit;
    LLVMModuleRef module = LLVMModuleCreateWithName("probe");
    LLVMInitializeNativeTarget();
    LLVMInitializeNativeAsmPrinter();
    LLVMDisposeErrorMessage(LLVMGetErrorMessage(LLVMRunPasses(module, "default<O2>", 0, LLVMCreatePassBuilderOptions())));
    LLVMDisposeMemoryBuffer(LLVMWriteBitcodeToMemoryBuffer(module));
    return LLVMOrcCreateLLJIT(&jit, 0) != 0;]])], [$1=yes], [$1=no])
  LIBS=$weft_save_LIBS CPPFLAGS=$weft_save_CPPFLAGS
  AC_MSG_RESULT([$$1])
])

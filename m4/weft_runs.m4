# WEFT_RUNS(VARIABLE): an error that names the variable and the program unless that program tells its version.  What a user gives for
# a program is otherwise believed until make needs it.
AC_DEFUN([WEFT_RUNS], [
  AS_IF([$$1 --version >/dev/null 2>&1], [], [AC_MSG_ERROR([$1=$$1 does not run])])
])

# src/collective: see README.md in this folder.
pkginclude_HEADERS += include/weft/collective.h

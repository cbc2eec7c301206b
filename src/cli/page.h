/* cli/page.h -- one HTML file that shows a program in a browser: passes, graph, memory plan, timeline, profile, source.
 *
 * The file is page.html with the program's data in its middle, as JSON. It needs no other file and no network. */
#ifndef WEFT_CLI_PAGE_H
#define WEFT_CLI_PAGE_H

#include "cli/compiled.h"
#include "cli/profile.h"

typedef struct cli_page {
  const char *program;          /* the file's name */
  const cli_compiled *compiled; /* with differences of the passes */
  const cli_profile *profile;   /* of one run; NULL: the page has no timeline and no profile */
} cli_page;

/* Writes the page. It has at most 5 MB: of large programs, long differences and the bodies of fusions are left out, and
 * the page says so. Errors: INVALID_ARGUMENT, the file cannot be written; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *cli_page_write(const char *path, const cli_page *page);

#endif

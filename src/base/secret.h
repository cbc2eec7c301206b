/* base/secret.h -- the secret of a job, which every process of the job has and nobody else.
 *
 * One file holds it: WEFT_COORD_SECRET_FILE.  `weft launch` makes it.  The coordination service asks every call for it,
 * and the collectives derive the keys of their connections from it. */
#ifndef WEFT_BASE_SECRET_H
#define WEFT_BASE_SECRET_H

#include <stdbool.h>

#include "base/status.h"

enum { WEFT_SECRET_MOST_BYTES = 400 };

/* Reads a secret: 1 to 400 printable ASCII characters other than space; newlines at the end are dropped.
 *   file  a regular file, which only its owner and group may access; "": there is no secret, and *out is NULL
 *   out   malloc'd, owned by the caller; freed with weft_secret_free
 * Errors: INVALID_ARGUMENT, naming the file and what is wrong with it; RESOURCE_EXHAUSTED. */
WEFT_NODISCARD weft_status *weft_secret_read(const char *file, char **out);

/* The same for the file that WEFT_COORD_SECRET_FILE names. */
WEFT_NODISCARD weft_status *weft_secret_of_job(char **out);

void weft_secret_free(char *secret); /* overwrites it first; NULL is fine */

/* Compares in a time that does not depend on the bytes of the secret. */
bool weft_secret_equal(const char *secret, const char *given);

#endif

/* base/log.c -- diagnostics on standard error, by module and level (log.h). */
#include <config.h>

#include "base/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = {"ERROR", "WARN", "INFO", "DEBUG"};

enum { MAX_RULES = 32 };
static struct rule {
  char module[16]; /* "" for every module */
  weft_log_level level;
} rules[MAX_RULES];
static int rule_count;
static pthread_once_t rules_once = PTHREAD_ONCE_INIT;

/* WEFT_LOG := rule { ',' rule };  rule := [module ':'] (error | warn | info | debug) */
static void read_rules(void)
{
  const char *at = getenv("WEFT_LOG");

  while (at && *at && rule_count < MAX_RULES) {
    size_t length = strcspn(at, ",");
    const char *colon = memchr(at, ':', length);
    const char *level = colon ? colon + 1 : at;
    size_t level_length = (size_t)(at + length - level);
    struct rule *rule = &rules[rule_count];

    if (colon) snprintf(rule->module, sizeof rule->module, "%.*s", (int)(colon - at), at);
    size_t i = 0;
    while (i < WEFT_COUNT(level_names) &&
           (level_length != strlen(level_names[i]) || strncasecmp(level, level_names[i], level_length) != 0))
      i++;
    if (i < WEFT_COUNT(level_names)) {
      rule->level = (weft_log_level)i;
      rule_count++;
    } else {
      dprintf(STDERR_FILENO, "weft[%d] WARN log: WEFT_LOG: expected [module:]error|warn|info|debug, got \"%.*s\"\n",
              (int)getpid(), (int)length, at);
      rule->module[0] = '\0';
    }
    at += length;
    if (*at == ',') at++;
  }
}

bool weft_log_enabled(const char *module, weft_log_level level)
{
  weft_log_level limit = WEFT_LOG_WARN;
  bool exact = false;

  pthread_once(&rules_once, read_rules);
  for (int i = 0; i < rule_count; i++) {
    bool match = strcmp(rules[i].module, module) == 0;
    if (!match && (exact || rules[i].module[0])) continue;
    limit = rules[i].level;
    exact = match;
  }
  return level <= limit;
}

void weft_log(const char *module, weft_log_level level, const char *fmt, ...)
{
  char line[2048];
  int head, body;
  va_list args;

  head = snprintf(line, sizeof line, "weft[%d] %s %s: ", (int)getpid(), level_names[level], module);
  va_start(args, fmt);
  body = vsnprintf(line + head, sizeof line - (size_t)head - 1, fmt, args);
  va_end(args);
  if (body < 0) return;
  if (body > (int)sizeof line - head - 2) body = (int)sizeof line - head - 2;
  line[head + body] = '\n';
  (void)!write(STDERR_FILENO, line, (size_t)(head + body + 1));
}

/* coord/hello.h -- what a TLS client may make OpenSSL keep before it has proved anything.
 * A ClientHello may be 128 KiB long.  OpenSSL takes memory for a whole handshake message when it has read the message's
 * first four bytes, or, from 3.0.22 on, as the message comes.  This BIO stands before a server's socket and reads
 * along: it ends the connection at the header of a message in the clear that is longer than COORD_HELLO_BYTES.  With
 * TLS 1.3, the oldest version that a service accepts, a client sends only ClientHello in the clear, once or twice
 * (HelloRetryRequest); SSL_CTX_set_max_cert_list bounds the messages after it. */
#ifndef WEFT_COORD_HELLO_H
#define WEFT_COORD_HELLO_H

#include <openssl/bio.h>

/* Of one handshake message. OpenSSL begins with a buffer for this many bytes, so that it never takes more. */
enum { COORD_HELLO_BYTES = 16 << 10 };

/* A BIO to be pushed onto that of the socket; NULL: out of memory. */
BIO *coord_hello_bio(void);

#endif

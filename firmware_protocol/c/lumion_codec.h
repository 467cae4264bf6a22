/*
 * Reference codec of the LUMION mesh controller's wire protocol: frames in C99, without heap and without I/O.
 *
 *     wire    = 00 | COBS(content) | 00
 *     content = body | CRC-32(body), little endian
 *     body    = header (8 bytes) | payload
 *
 * Memory is the caller's. A board needs one receive buffer of MTU - 2 bytes, in which frames are decoded in place, and
 * one transmit buffer of its largest frame, in which a payload may be built and then encoded in place.
 */
#ifndef LUMION_CODEC_H
#define LUMION_CODEC_H

#include <stddef.h>
#include <stdint.h>

#include "lumion_protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

#define LUM_CRC_SIZE 4u
#define LUM_LEAST_CONTENT (LUM_FRAME_HEADER_SIZE + LUM_CRC_SIZE)
#define LUM_CRC_RESIDUE 0x2144DF1Cu /* CRC-32 over the whole content of a good frame, its CRC included */
#define LUM_INVALID ((size_t)-1)

/* First byte of a header of this protocol major, and its two halves. */
#define LUM_KIND_VERSION(kind) ((uint8_t)(LUM_PROTOCOL_MAJOR << 4 | (unsigned)(kind)))
#define LUM_KIND(kind_version) ((unsigned)(kind_version) & 0x0Fu)
#define LUM_VERSION(kind_version) ((unsigned)(kind_version) >> 4)

/* Where a payload of `size` bytes has to stand in the transmit buffer to be encoded in place. */
#define LUM_PAYLOAD_PLACE(size) ((size_t)10u + ((size_t)(size) + LUM_LEAST_CONTENT) / 254u)

/* What a receiver has found. The four kinds of bad frames are counted under the counter of the same name. */
enum lum_result {
    LUM_NOTHING = 0,  /* all bytes are taken, no frame is complete */
    LUM_FRAME,        /* a good frame: lum_decoder.block holds its body */
    LUM_BAD_OVERSIZE, /* more than MTU - 2 bytes without a delimiter; reported once, the rest is skipped */
    LUM_BAD_COBS,     /* a code byte points beyond the end */
    LUM_BAD_SHORT,    /* content of less than 12 bytes */
    LUM_BAD_CRC
};

/* Push decoder. Its fields are for reading: after LUM_FRAME, block[0 .. body_size - 1] until the next push. */
struct lum_decoder {
    uint8_t *block;
    size_t room;      /* MTU - 2 */
    size_t size;      /* bytes kept of the present block */
    size_t body_size; /* header and payload of the frame just found */
    int skipping;     /* the present block was too long */
};

/* CRC-32 as in zlib: start with 0, feed the result back to go on. */
uint32_t lum_crc32(uint32_t crc, const uint8_t *data, size_t size);

/* Largest wire size of a frame with a payload of `size` bytes, both delimiters included. */
size_t lum_wire_bound(size_t size);

/* Largest payload whose bound fits an MTU of at least 15 bytes. */
size_t lum_max_payload(size_t mtu);

/* Canonical COBS of `content` into `block` of at least size + size / 254 + 1 bytes; returns the bytes written. */
size_t lum_cobs_encode(const uint8_t *content, size_t size, uint8_t *block);

/* Decodes a block without delimiters in place; returns the content size, or LUM_INVALID. */
size_t lum_cobs_decode(uint8_t *block, size_t size);

/*
 * Writes one whole frame, both delimiters included, and returns its size; 0 if the bound of the frame exceeds
 * `capacity`, whatever its bytes are. `payload` may lie in `wire` itself at LUM_PAYLOAD_PLACE(size) or behind it.
 */
size_t lum_frame_encode(const struct lum_frame_header *header, const uint8_t *payload, size_t size, uint8_t *wire,
                        size_t capacity);

/* `memory` holds mtu - 2 bytes; nothing else is ever needed. */
void lum_decoder_init(struct lum_decoder *decoder, uint8_t *memory, size_t mtu);

/*
 * Takes bytes up to the end of the first block they complete. Returns how many were taken; *result says what was
 * found. Call again with the rest until every byte is taken. Nothing resets or stops the decoder.
 */
size_t lum_decoder_push(struct lum_decoder *decoder, const uint8_t *data, size_t size, enum lum_result *result);

#ifdef __cplusplus
}
#endif

#endif /* LUMION_CODEC_H */

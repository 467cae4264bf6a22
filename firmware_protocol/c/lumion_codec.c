#include "lumion_codec.h"

/* Half-byte table of the reflected polynomial: 64 bytes of flash instead of 1024. */
static const uint32_t crc_table[16] = {
    0x00000000u, 0x1DB71064u, 0x3B6E20C8u, 0x26D930ACu, 0x76DC4190u, 0x6B6B51F4u, 0x4DB26158u, 0x5005713Cu,
    0xEDB88320u, 0xF00F9344u, 0xD6D6A3E8u, 0xCB61B38Cu, 0x9B64C2B0u, 0x86D3D2D4u, 0xA00AE278u, 0xBDBDF21Cu,
};

static uint32_t crc_byte(uint32_t state, uint8_t byte)
{
    state ^= byte;
    state = state >> 4 ^ crc_table[state & 0x0Fu];
    return state >> 4 ^ crc_table[state & 0x0Fu];
}

uint32_t lum_crc32(uint32_t crc, const uint8_t *data, size_t size)
{
    uint32_t state = ~crc;
    for (size_t i = 0; i < size; i++) {
        state = crc_byte(state, data[i]);
    }
    return ~state;
}

size_t lum_wire_bound(size_t size)
{
    const size_t content = size + LUM_LEAST_CONTENT;
    return content + (content + 253u) / 254u + 2u;
}

size_t lum_max_payload(size_t mtu)
{
    const size_t room = mtu - 2u;
    return room - (room + 254u) / 255u - LUM_LEAST_CONTENT;
}

/* A COBS block under construction: `place` is where the code byte of the open group goes. */
struct stuffer {
    uint8_t *out;
    size_t place;
    size_t next;
    uint8_t code;
};

static void stuffer_close(struct stuffer *stuffer)
{
    stuffer->out[stuffer->place] = stuffer->code;
    stuffer->place = stuffer->next++;
    stuffer->code = 1;
}

/*
 * A group of 254 bytes is closed only when another byte follows: a run of 254 at the very end of the content gets no
 * empty group behind it, which is the canonical (shorter) form.
 */
static void stuffer_push(struct stuffer *stuffer, uint8_t byte)
{
    if (stuffer->code == 0xFFu) {
        stuffer_close(stuffer);
    }
    if (byte == 0) {
        stuffer_close(stuffer);
    } else {
        stuffer->out[stuffer->next++] = byte;
        stuffer->code++;
    }
}

static size_t stuffer_end(struct stuffer *stuffer)
{
    stuffer->out[stuffer->place] = stuffer->code;
    return stuffer->next;
}

size_t lum_cobs_encode(const uint8_t *content, size_t size, uint8_t *block)
{
    struct stuffer stuffer = {block, 0, 1, 1};
    for (size_t i = 0; i < size; i++) {
        stuffer_push(&stuffer, content[i]);
    }
    return stuffer_end(&stuffer);
}

size_t lum_cobs_decode(uint8_t *block, size_t size)
{
    size_t from = 0;
    size_t to = 0;
    while (from < size) {
        const size_t code = block[from++];
        if (code == 0 || code - 1u > size - from) {
            return LUM_INVALID;
        }
        memmove(block + to, block + from, code - 1u);
        from += code - 1u;
        to += code - 1u;
        if (code != 0xFFu && from < size) {
            block[to++] = 0;
        }
    }
    return to;
}

size_t lum_frame_encode(const struct lum_frame_header *header, const uint8_t *payload, size_t size, uint8_t *wire,
                        size_t capacity)
{
    struct stuffer stuffer = {wire, 1, 2, 1};
    uint8_t head[LUM_FRAME_HEADER_SIZE];
    uint8_t tail[LUM_CRC_SIZE];
    uint32_t state = ~(uint32_t)0;
    if (lum_wire_bound(size) > capacity) {
        return 0;
    }
    lum_frame_header_write(header, head);
    for (size_t i = 0; i < sizeof head; i++) {
        state = crc_byte(state, head[i]);
        stuffer_push(&stuffer, head[i]);
    }
    for (size_t i = 0; i < size; i++) {
        const uint8_t byte = payload[i]; /* read before anything is written over it */
        state = crc_byte(state, byte);
        stuffer_push(&stuffer, byte);
    }
    lum_put_u32(tail, ~state);
    for (size_t i = 0; i < sizeof tail; i++) {
        stuffer_push(&stuffer, tail[i]);
    }
    const size_t end = stuffer_end(&stuffer);
    wire[0] = 0;
    wire[end] = 0;
    return end + 1u;
}

void lum_decoder_init(struct lum_decoder *decoder, uint8_t *memory, size_t mtu)
{
    decoder->block = memory;
    decoder->room = mtu - 2u;
    decoder->size = 0;
    decoder->body_size = 0;
    decoder->skipping = 0;
}

/* Checks a complete block in the order of the specification: COBS, length, CRC. */
static enum lum_result finish(struct lum_decoder *decoder)
{
    const size_t content = lum_cobs_decode(decoder->block, decoder->size);
    decoder->size = 0;
    if (content == LUM_INVALID) {
        return LUM_BAD_COBS;
    }
    if (content < LUM_LEAST_CONTENT) {
        return LUM_BAD_SHORT;
    }
    if (lum_crc32(0, decoder->block, content) != LUM_CRC_RESIDUE) {
        return LUM_BAD_CRC;
    }
    decoder->body_size = content - LUM_CRC_SIZE;
    return LUM_FRAME;
}

size_t lum_decoder_push(struct lum_decoder *decoder, const uint8_t *data, size_t size, enum lum_result *result)
{
    decoder->body_size = 0;
    *result = LUM_NOTHING;
    for (size_t i = 0; i < size; i++) {
        if (data[i] == 0) {
            decoder->skipping = 0;
            if (decoder->size != 0) {
                *result = finish(decoder);
                return i + 1u;
            }
        } else if (!decoder->skipping) {
            if (decoder->size == decoder->room) {
                decoder->skipping = 1;
                decoder->size = 0;
                *result = LUM_BAD_OVERSIZE;
                return i + 1u;
            }
            decoder->block[decoder->size++] = data[i];
        }
    }
    return size;
}

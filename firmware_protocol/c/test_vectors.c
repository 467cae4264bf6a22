/*
 * Walks the reference codec through every record of vectors.json. Prints what is wrong, one line per record, and
 * returns 1; prints one line and returns 0 if nothing is.
 *
 *     cc -std=c99 -o test_vectors test_vectors.c lumion_codec.c lumion_image.c && ./test_vectors
 */
#include <stdio.h>
#include <string.h>

#include "lumion_codec.h"
#include "lumion_image.h"

#define MTU 8192
#define COUNT(array) (sizeof(array) / sizeof(array)[0])
#define EXPECT(condition)                                                                                             \
    do {                                                                                                              \
        if (!(condition)) {                                                                                           \
            printf("line %d: %s: ", __LINE__, #condition);                                                            \
            return 0;                                                                                                 \
        }                                                                                                             \
    } while (0)

struct frame_vector {
    const char *name;
    struct lum_frame_header header;
    const uint8_t *payload;
    size_t payload_size;
    const uint8_t *wire;
    size_t wire_size;
    int (*check)(const uint8_t *payload, size_t size);
};

struct accepted_vector {
    const char *name;
    const uint8_t *wire;
    size_t wire_size;
    const uint8_t *payload;
    size_t payload_size;
    int canonical;
};

struct bad_vector {
    const char *name;
    size_t mtu;
    const uint8_t *wire;
    size_t wire_size;
    enum lum_result cause;
};

struct image_vector {
    const char *name;
    struct lum_image image;
    uint32_t crc32;
    const uint16_t *monitors;
    size_t n_monitors;
    const uint16_t *base;
    const uint16_t *tables;
    const uint32_t *times;
    uint32_t n_points;
};

struct bad_image_vector {
    const char *name;
    struct lum_image image;
    int status;
    struct lum_image_fault fault;
};

struct set_vector {
    uint32_t count, first, step, payload, content, wire, bound, crc32;
};

struct length_vector {
    size_t content;
    size_t length[4];
};

struct mtu_vector {
    size_t mtu, payload;
};

#include "vectors.inc"

static uint8_t memory[MTU];
static uint8_t wire_out[MTU];
static uint8_t scratch[MTU];

/* Pushes `wire` in pieces of `step` bytes and expects exactly one result. */
static int push_all(struct lum_decoder *decoder, const uint8_t *wire, size_t size, size_t step, enum lum_result *only)
{
    int found = 0;
    *only = LUM_NOTHING;
    for (size_t start = 0; start < size; start += step) {
        const size_t end = start + step < size ? start + step : size;
        for (size_t at = start; at < end;) {
            enum lum_result result;
            at += lum_decoder_push(decoder, wire + at, end - at, &result);
            if (result == LUM_NOTHING) {
                continue;
            }
            found++;
            *only = result;
            if (result == LUM_FRAME) { /* the next push may overwrite it */
                memcpy(scratch, decoder->block, decoder->body_size);
                memset(scratch + decoder->body_size, 0xA5, 8);
            }
        }
    }
    return found == 1;
}

static int decodes_to(const uint8_t *wire, size_t wire_size, const uint8_t *body, size_t body_size)
{
    for (size_t step = 1; step <= wire_size; step += step < 4 ? 1 : wire_size) {
        struct lum_decoder decoder;
        enum lum_result result;
        lum_decoder_init(&decoder, memory, 512);
        EXPECT(push_all(&decoder, wire, wire_size, step, &result));
        EXPECT(result == LUM_FRAME);
        EXPECT(memcmp(scratch, body, body_size) == 0);
        EXPECT(scratch[body_size] == 0xA5);
    }
    return 1;
}

static int check_frame(const struct frame_vector *v)
{
    static uint8_t body[MTU];
    struct lum_frame_header header;
    uint8_t *in_place = wire_out + LUM_PAYLOAD_PLACE(v->payload_size);
    lum_frame_header_write(&v->header, body);
    memcpy(body + LUM_FRAME_HEADER_SIZE, v->payload, v->payload_size);
    if (!decodes_to(v->wire, v->wire_size, body, LUM_FRAME_HEADER_SIZE + v->payload_size)) {
        return 0;
    }
    lum_frame_header_read(&header, scratch);
    EXPECT(header.kind_version == v->header.kind_version && header.flags == v->header.flags);
    EXPECT(header.command == v->header.command && header.status == v->header.status);
    EXPECT(header.seq == v->header.seq && header.session == v->header.session);
    EXPECT(lum_frame_encode(&v->header, v->payload, v->payload_size, wire_out, MTU) == v->wire_size);
    EXPECT(memcmp(wire_out, v->wire, v->wire_size) == 0);
    memmove(in_place, v->payload, v->payload_size);
    EXPECT(lum_frame_encode(&v->header, in_place, v->payload_size, wire_out, MTU) == v->wire_size);
    EXPECT(memcmp(wire_out, v->wire, v->wire_size) == 0);
    EXPECT(lum_frame_encode(&v->header, v->payload, v->payload_size, wire_out, lum_wire_bound(v->payload_size) - 1) == 0);
    return v->check(v->payload, v->payload_size);
}

static int check_accepted(const struct accepted_vector *v)
{
    struct lum_decoder decoder;
    struct lum_frame_header header;
    enum lum_result result;
    lum_decoder_init(&decoder, memory, 512);
    EXPECT(push_all(&decoder, v->wire, v->wire_size, v->wire_size, &result));
    EXPECT(result == LUM_FRAME);
    EXPECT(memcmp(scratch + LUM_FRAME_HEADER_SIZE, v->payload, v->payload_size) == 0);
    lum_frame_header_read(&header, scratch);
    const size_t size = lum_frame_encode(&header, v->payload, v->payload_size, wire_out, MTU);
    EXPECT((size == v->wire_size && memcmp(wire_out, v->wire, size) == 0) == v->canonical);
    return 1;
}

static int check_bad(const struct bad_vector *v)
{
    for (size_t step = 1; step <= v->wire_size; step += v->wire_size - 1) {
        struct lum_decoder decoder;
        enum lum_result result;
        lum_decoder_init(&decoder, memory, v->mtu);
        EXPECT(push_all(&decoder, v->wire, v->wire_size, step, &result));
        EXPECT(result == v->cause);
        EXPECT(push_all(&decoder, frames[0].wire, frames[0].wire_size, step, &result));
        EXPECT(result == LUM_FRAME);
    }
    return 1;
}

static int check_image(const struct image_vector *v)
{
    static uint16_t table[MTU];
    struct lum_image_fault fault;
    size_t selected = 0;
    EXPECT(lum_image_check(&v->image, &fault) == LUM_STATUS_OK);
    EXPECT(lum_crc32(0, v->image.bytes, v->image.size) == v->crc32);
    for (uint32_t channel = 0; channel < v->image.n_adc; channel++) {
        if (lum_image_selects(&v->image, (uint16_t)channel)) {
            EXPECT(selected < v->n_monitors && v->monitors[selected] == channel);
            selected++;
        }
    }
    EXPECT(selected == v->n_monitors);
    const uint8_t *start = lum_image_start_table(&v->image);
    for (uint16_t channel = 0; channel < v->image.n_dac; channel++) {
        table[channel] = start != NULL ? lum_get_u16(start + 2u * channel) : v->base[channel];
    }
    size_t offset = lum_image_first(&v->image);
    for (uint32_t number = 0; number < v->n_points; number++) {
        struct lum_point point;
        offset = lum_image_point(&v->image, offset, &point);
        lum_point_apply(&v->image, &point, table);
        EXPECT(memcmp(table, v->tables + (size_t)number * v->image.n_dac, 2u * v->image.n_dac) == 0);
        EXPECT(point.settle_us == v->times[2 * number] && point.dwell_us == v->times[2 * number + 1]);
    }
    EXPECT(offset == v->image.size);
    return 1;
}

static int check_bad_image(const struct bad_image_vector *v)
{
    struct lum_image_fault fault;
    EXPECT((int)lum_image_check(&v->image, &fault) == v->status);
    EXPECT(fault.channel == v->fault.channel && fault.index == v->fault.index);
    EXPECT(fault.value == v->fault.value && fault.limit == v->fault.limit);
    return 1;
}

static int check_set(const struct set_vector *v)
{
    static uint8_t payload[MTU];
    const struct lum_set_request set = {0x01010101u, (uint16_t)v->count};
    const struct lum_frame_header header = {LUM_KIND_VERSION(LUM_KIND_REQ), 0, LUM_COMMAND_SET, 0, 0x0102u, 0x2F71u};
    lum_set_request_write(&set, payload);
    for (uint32_t i = 0; i < v->count; i++) {
        lum_put_u16(payload + LUM_SET_REQUEST_CODES_OFFSET + 2u * i, (uint16_t)(v->first + v->step * i));
    }
    const size_t size = LUM_SET_REQUEST_SIZE + 2u * v->count;
    EXPECT(size == v->payload && size + LUM_LEAST_CONTENT == v->content);
    EXPECT(lum_wire_bound(size) == v->bound);
    EXPECT(lum_frame_encode(&header, payload, size, wire_out, v->bound) == v->wire);
    EXPECT(lum_crc32(0, wire_out, v->wire) == v->crc32);
    uint8_t *in_place = wire_out + LUM_PAYLOAD_PLACE(size);
    memcpy(in_place, payload, size);
    EXPECT(lum_frame_encode(&header, in_place, size, wire_out, v->bound) == v->wire);
    EXPECT(lum_crc32(0, wire_out, v->wire) == v->crc32);
    return 1;
}

static int check_lengths(const struct length_vector *v)
{
    for (int pattern = 0; pattern < 4; pattern++) {
        memset(scratch, pattern == 3 ? 0 : 1, v->content);
        if (pattern == 1) {
            scratch[v->content - 1] = 0;
        } else if (pattern == 2) {
            scratch[0] = 0;
        }
        memcpy(wire_out, scratch, v->content);
        const size_t size = lum_cobs_encode(wire_out, v->content, memory);
        EXPECT(size == v->length[pattern]);
        EXPECT(memchr(memory, 0, size) == NULL);
        EXPECT(lum_cobs_decode(memory, size) == v->content);
        EXPECT(memcmp(memory, scratch, v->content) == 0);
    }
    return 1;
}

static int check_mtu(const struct mtu_vector *v)
{
    EXPECT(lum_max_payload(v->mtu) == v->payload);
    EXPECT(lum_wire_bound(v->payload) <= v->mtu && lum_wire_bound(v->payload + 1) > v->mtu);
    return 1;
}

static int check_crc(void)
{
    EXPECT(lum_crc32(0, (const uint8_t *)"123456789", 9) == 0xCBF43926u);
    EXPECT(lum_crc32(lum_crc32(0, (const uint8_t *)"1234", 4), (const uint8_t *)"56789", 5) == 0xCBF43926u);
    return 1;
}

static unsigned failed;
static unsigned passed;

static void note(int good, const char *name)
{
    if (good) {
        passed++;
    } else {
        failed++;
        printf("%s\n", name);
    }
}

int main(void)
{
    note(check_crc(), "check value of the CRC");
    for (size_t i = 0; i < COUNT(frames); i++) {
        note(check_frame(&frames[i]), frames[i].name);
    }
    for (size_t i = 0; i < COUNT(accepted); i++) {
        note(check_accepted(&accepted[i]), accepted[i].name);
    }
    for (size_t i = 0; i < COUNT(bad_frames); i++) {
        note(check_bad(&bad_frames[i]), bad_frames[i].name);
    }
    for (size_t i = 0; i < COUNT(images); i++) {
        note(check_image(&images[i]), images[i].name);
    }
    for (size_t i = 0; i < COUNT(bad_images); i++) {
        note(check_bad_image(&bad_images[i]), bad_images[i].name);
    }
    for (size_t i = 0; i < COUNT(set_frames); i++) {
        note(check_set(&set_frames[i]), "large SET frame");
    }
    for (size_t i = 0; i < COUNT(cobs_lengths); i++) {
        note(check_lengths(&cobs_lengths[i]), "COBS length");
    }
    for (size_t i = 0; i < COUNT(mtus); i++) {
        note(check_mtu(&mtus[i]), "MTU");
    }
    printf("%u records good, %u wrong\n", passed, failed);
    return failed != 0u;
}

/*
 * Sweep images in C99, in place and without heap: the check a board owes to SWEEP_LOAD, and the points one by one.
 */
#ifndef LUMION_IMAGE_H
#define LUMION_IMAGE_H

#include <stddef.h>
#include <stdint.h>

#include "lumion_protocol.h"

#ifdef __cplusplus
extern "C" {
#endif

/* An image with the sizes of the board that runs it. */
struct lum_image {
    const uint8_t *bytes;
    size_t size;
    uint16_t n_dac;
    uint16_t n_adc;
};

/* Fields of the error reply; LUM_NO_CHANNEL stands for none. */
struct lum_image_fault {
    uint16_t channel;
    uint16_t index;
    int32_t value;
    int32_t limit;
};

/* One point: `count` changes of four bytes at `changes`, or a table of n_dac codes at `table`. */
struct lum_point {
    const uint8_t *changes;
    const uint8_t *table;
    uint16_t count;
    uint32_t settle_us;
    uint32_t dwell_us;
};

/* LUM_STATUS_OK, LUM_STATUS_BAD_VALUE or LUM_STATUS_BAD_CHANNEL; `fault` is filled unless OK. */
enum lum_status lum_image_check(const struct lum_image *image, struct lum_image_fault *fault);

/* The functions below expect an image that has passed the check. */

/* Whether monitor `channel` is recorded. */
int lum_image_selects(const struct lum_image *image, uint16_t channel);

/* The start table, n_dac codes little endian, or NULL. */
const uint8_t *lum_image_start_table(const struct lum_image *image);

/* Offset of the first point. */
size_t lum_image_first(const struct lum_image *image);

/* Reads the point at `offset` and returns the offset of the next one. */
size_t lum_image_point(const struct lum_image *image, size_t offset, struct lum_point *point);

/* Puts a point on top of `table`, n_dac codes in the byte order of the processor. */
void lum_point_apply(const struct lum_image *image, const struct lum_point *point, uint16_t *table);

#ifdef __cplusplus
}
#endif

#endif /* LUMION_IMAGE_H */

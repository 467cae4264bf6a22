#include "lumion_image.h"

#define HEAD_SIZE 2u
#define TIMES_SIZE 8u
#define CODE_SIZE 2u
#define FIELD(name) LUM_SWEEP_IMAGE_HEADER_##name##_OFFSET

static enum lum_status bad_value(struct lum_image_fault *fault, uint16_t index, size_t offset)
{
    fault->channel = LUM_NO_CHANNEL;
    fault->index = index;
    fault->value = (int32_t)offset;
    fault->limit = 0;
    return LUM_STATUS_BAD_VALUE;
}

static enum lum_status bad_channel(struct lum_image_fault *fault, uint16_t index, uint16_t channel, uint16_t channels)
{
    fault->channel = channel;
    fault->index = index;
    fault->value = 0;
    fault->limit = channels;
    return LUM_STATUS_BAD_CHANNEL;
}

/* Point numbers saturate in an error reply, because 65535 means none. */
static uint16_t point_index(uint32_t number)
{
    return (uint16_t)(number < LUM_NO_CHANNEL ? number : LUM_NO_CHANNEL - 1u);
}

static int has_start_table(const struct lum_image *image)
{
    return (image->bytes[FIELD(IMG_FLAGS)] & LUM_IMAGE_FLAG_START_TABLE) != 0;
}

static size_t mask_size(const struct lum_image *image)
{
    return lum_get_u16(image->bytes + FIELD(MASK_LEN));
}

static size_t table_size(const struct lum_image *image)
{
    return (size_t)CODE_SIZE * image->n_dac;
}

static enum lum_status check_header(const struct lum_image *image, struct lum_image_fault *fault)
{
    struct lum_sweep_image_header head;
    if (image->size < LUM_SWEEP_IMAGE_HEADER_SIZE) {
        return bad_value(fault, LUM_NO_CHANNEL, 0);
    }
    lum_sweep_image_header_read(&head, image->bytes);
    if (head.version != LUM_IMAGE_VERSION) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(VERSION));
    }
    if (head.n_avg < 1u || head.n_avg > 4096u) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(N_AVG));
    }
    if (head.n_points < 1u) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(N_POINTS));
    }
    if (head.end_action > LUM_END_ACTION_KEEP) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(END_ACTION));
    }
    if (head.trigger > LUM_SWEEP_TRIGGER_EXTERNAL) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(TRIGGER));
    }
    if (head.mask_len % 2u != 0u) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(MASK_LEN));
    }
    return LUM_STATUS_OK;
}

static enum lum_status check_mask(const struct lum_image *image, struct lum_image_fault *fault)
{
    const size_t size = mask_size(image);
    const uint8_t *mask = image->bytes + FIELD(MASK);
    uint32_t selected = size == 0 ? image->n_adc : 0u;
    if (size > image->size - LUM_SWEEP_IMAGE_HEADER_SIZE) {
        return bad_value(fault, LUM_NO_CHANNEL, FIELD(MASK));
    }
    for (size_t channel = 0; channel < 8u * size; channel++) {
        if (!LUM_BIT_SET(mask[channel / 8u], channel % 8u)) {
            continue;
        }
        if (channel >= image->n_adc) {
            return bad_channel(fault, LUM_NO_CHANNEL, (uint16_t)channel, image->n_adc);
        }
        selected++;
    }
    return selected == 0u ? bad_value(fault, LUM_NO_CHANNEL, FIELD(MASK_LEN)) : LUM_STATUS_OK;
}

/* Checks the point at *offset and moves *offset behind it. */
static enum lum_status check_point(const struct lum_image *image, uint32_t number, size_t *offset,
                                   struct lum_image_fault *fault)
{
    const uint16_t index = point_index(number);
    if (image->size - *offset < HEAD_SIZE) {
        return bad_value(fault, index, *offset);
    }
    const uint16_t head = lum_get_u16(image->bytes + *offset);
    const uint16_t count = head & LUM_FULL_TABLE;
    const size_t size = count == LUM_FULL_TABLE ? table_size(image) : (size_t)count * LUM_PAIR_RECORD_SIZE;
    *offset += HEAD_SIZE;
    if (size > image->size - *offset) {
        return bad_value(fault, index, *offset);
    }
    for (uint16_t i = 0; count != LUM_FULL_TABLE && i < count; i++) {
        const uint16_t channel = lum_get_u16(image->bytes + *offset + (size_t)i * LUM_PAIR_RECORD_SIZE);
        if (channel >= image->n_dac) {
            return bad_channel(fault, index, channel, image->n_dac);
        }
    }
    *offset += size;
    if ((head & LUM_POINT_TIMING) == 0u) {
        return LUM_STATUS_OK;
    }
    if (image->size - *offset < TIMES_SIZE) {
        return bad_value(fault, index, *offset);
    }
    *offset += TIMES_SIZE;
    return LUM_STATUS_OK;
}

enum lum_status lum_image_check(const struct lum_image *image, struct lum_image_fault *fault)
{
    enum lum_status status = check_header(image, fault);
    if (status == LUM_STATUS_OK) {
        status = check_mask(image, fault);
    }
    if (status != LUM_STATUS_OK) {
        return status;
    }
    size_t offset = FIELD(MASK) + mask_size(image);
    if (has_start_table(image)) {
        if (table_size(image) > image->size - offset) {
            return bad_value(fault, LUM_NO_CHANNEL, offset);
        }
        offset += table_size(image);
    }
    const uint32_t n_points = lum_get_u32(image->bytes + FIELD(N_POINTS));
    for (uint32_t number = 0; number < n_points; number++) {
        status = check_point(image, number, &offset, fault);
        if (status != LUM_STATUS_OK) {
            return status;
        }
    }
    return offset == image->size ? LUM_STATUS_OK : bad_value(fault, LUM_NO_CHANNEL, offset);
}

int lum_image_selects(const struct lum_image *image, uint16_t channel)
{
    const size_t byte = channel / 8u;
    if (mask_size(image) == 0u) {
        return channel < image->n_adc;
    }
    return byte < mask_size(image) && LUM_BIT_SET(image->bytes[FIELD(MASK) + byte], channel % 8u);
}

const uint8_t *lum_image_start_table(const struct lum_image *image)
{
    return has_start_table(image) ? image->bytes + FIELD(MASK) + mask_size(image) : NULL;
}

size_t lum_image_first(const struct lum_image *image)
{
    return FIELD(MASK) + mask_size(image) + (has_start_table(image) ? table_size(image) : 0u);
}

size_t lum_image_point(const struct lum_image *image, size_t offset, struct lum_point *point)
{
    const uint16_t head = lum_get_u16(image->bytes + offset);
    const uint16_t count = head & LUM_FULL_TABLE;
    const uint8_t *body = image->bytes + offset + HEAD_SIZE;
    point->table = count == LUM_FULL_TABLE ? body : NULL;
    point->changes = count == LUM_FULL_TABLE ? NULL : body;
    point->count = count == LUM_FULL_TABLE ? 0u : count;
    offset += HEAD_SIZE + (point->table != NULL ? table_size(image) : (size_t)count * LUM_PAIR_RECORD_SIZE);
    if ((head & LUM_POINT_TIMING) != 0u) {
        point->settle_us = lum_get_u32(image->bytes + offset);
        point->dwell_us = lum_get_u32(image->bytes + offset + 4u);
        return offset + TIMES_SIZE;
    }
    point->settle_us = lum_get_u32(image->bytes + FIELD(SETTLE_US));
    point->dwell_us = lum_get_u32(image->bytes + FIELD(DWELL_US));
    return offset;
}

void lum_point_apply(const struct lum_image *image, const struct lum_point *point, uint16_t *table)
{
    for (uint16_t channel = 0; point->table != NULL && channel < image->n_dac; channel++) {
        table[channel] = lum_get_u16(point->table + (size_t)channel * CODE_SIZE);
    }
    for (uint16_t i = 0; i < point->count; i++) {
        struct lum_pair_record change;
        lum_pair_record_read(&change, point->changes + (size_t)i * LUM_PAIR_RECORD_SIZE);
        table[change.channel] = change.code;
    }
}

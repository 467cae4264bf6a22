/*
 * Wire protocol of the LUMION mesh controller, version 1: constants, enums and payloads.
 *
 * Generated from the protocol's schema by `python -m firmware_protocol.generate`. Do not edit.
 *
 * Each payload has a size (its fixed part, the minimum that a receiver accepts), the offset of every field (for
 * BAD_VALUE replies), a struct in the byte order of the processor, and two functions that convert between the struct
 * and the packed little-endian bytes. Arrays follow the fixed part at their own offset. Alignment and byte order of
 * the processor do not matter. Text is NUL padded, not terminated.
 */
#ifndef LUMION_PROTOCOL_H
#define LUMION_PROTOCOL_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LUM_SCHEMA_CRC32 0xA9C2E947u /* schema_crc32 of HELLO */
#define LUM_PROTOCOL_MAJOR 1u /* high nibble of kind_version */
#define LUM_MIN_MTU 256u /* frame size in bytes that every implementation accepts after reset */
#define LUM_NO_CHANNEL 65535u /* value of channel or index in an error reply for none */
#define LUM_SATURATED 65535u /* monitor code above full scale */
#define LUM_DRIVEN_TABLE 255u /* bank of READBACK: the table driven now */
#define LUM_FULL_SCALE_CODE 65535u /* drive or monitor code at full scale */
#define LUM_MAX_STORED_REPLY 64u /* bytes of payload kept per slot of the reply ring */
#define LUM_MAX_TEXT 32u /* bytes of text in an error reply */
#define LUM_STATS_COUNTERS 24u /* counters of GET_STATS in version 1 */
#define LUM_FIRST_TELEMETRY_STREAM 2u /* lowest id of a telemetry stream */
#define LUM_IMAGE_VERSION 1u /* version of the sweep image */
#define LUM_MAX_CHANGES 32766u /* largest number of changes of one point of a sweep */
#define LUM_FULL_TABLE 32767u /* bits 0 to 14 of a point's head: a table follows */
#define LUM_POINT_TIMING 32768u /* bit 15 of a point's head: times follow */
#define LUM_MAX_RECORDS 2147483647u /* largest number of records of one run */
#define LUM_SWEEP_PUSH_MS 20u /* longest wait of a started SWEEP_DATA event, ms */
#define LUM_SENDS 3u /* how often a host sends a request, including the first time */
#define LUM_DEADLINE_RTOS 7u /* deadline of a request in units of its first RTO, on a link without losses */
#define LUM_MOST_SENDS 12u /* how often a host sends a request at most on a link with losses */
#define LUM_LONGEST_STEP_RTOS 4u /* longest wait between two sends in units of the RTO */

/* Kind of a frame: request, reply or event (low nibble of kind_version in the header). */
enum lum_kind {
    LUM_KIND_REQ = 0x00,
    LUM_KIND_RSP = 0x01,
    LUM_KIND_EVT = 0x02,
};

/* Flags in the header of a frame. */
enum lum_header_flag {
    LUM_HEADER_FLAG_MORE = 0x01,
    LUM_HEADER_FLAG_RETRY = 0x02,
    LUM_HEADER_FLAG_NO_REPLY = 0x04,
    LUM_HEADER_FLAG_FAULT_PENDING = 0x80,
};

/* Command codes (protocol section 5). */
enum lum_command {
    LUM_COMMAND_HELLO = 0x00,
    LUM_COMMAND_PING = 0x01,
    LUM_COMMAND_ESTOP = 0x02,
    LUM_COMMAND_GET_STATS = 0x03,
    LUM_COMMAND_CONFIG = 0x10,
    LUM_COMMAND_STAGE = 0x11,
    LUM_COMMAND_STAGE_SPARSE = 0x12,
    LUM_COMMAND_COMMIT = 0x13,
    LUM_COMMAND_SET = 0x14,
    LUM_COMMAND_READBACK = 0x15,
    LUM_COMMAND_READ_ADC = 0x20,
    LUM_COMMAND_SUBSCRIBE = 0x21,
    LUM_COMMAND_WATCH = 0x22,
    LUM_COMMAND_SWEEP_LOAD = 0x30,
    LUM_COMMAND_SWEEP_START = 0x31,
    LUM_COMMAND_SWEEP_READ = 0x32,
    LUM_COMMAND_SWEEP_ACK = 0x33,
    LUM_COMMAND_SWEEP_ABORT = 0x34,
    LUM_COMMAND_FAULT_LIST = 0x40,
    LUM_COMMAND_FAULT_CLEAR = 0x41,
};

/* Event codes (protocol section 5). */
enum lum_event {
    LUM_EVENT_TELEMETRY = 0x80,
    LUM_EVENT_SWEEP_DATA = 0x81,
    LUM_EVENT_SWEEP_DONE = 0x82,
    LUM_EVENT_FAULT = 0x83,
    LUM_EVENT_LIGHT = 0x84,
};

/* Fixed stream numbers of events. Monitor readings use 2 … 1 + n_streams. */
enum lum_stream {
    LUM_STREAM_FAULT = 0x00,
    LUM_STREAM_SWEEP = 0x01,
    LUM_STREAM_LIGHT = 0x10,
};

/* Status codes (protocol section 12). */
enum lum_status {
    LUM_STATUS_OK = 0x00,
    LUM_STATUS_BUSY = 0x01,
    LUM_STATUS_UNKNOWN_COMMAND = 0x02,
    LUM_STATUS_BAD_LENGTH = 0x03,
    LUM_STATUS_BAD_VALUE = 0x04,
    LUM_STATUS_BAD_CHANNEL = 0x05,
    LUM_STATUS_LIMIT = 0x06,
    LUM_STATUS_NOT_CONFIGURED = 0x07,
    LUM_STATUS_SAFE = 0x08,
    LUM_STATUS_INTERLOCK = 0x09,
    LUM_STATUS_INCOMPLETE = 0x0A,
    LUM_STATUS_STALE = 0x0B,
    LUM_STATUS_SESSION = 0x0C,
    LUM_STATUS_TOO_OLD = 0x0D,
    LUM_STATUS_TOO_NEW = 0x0E,
    LUM_STATUS_TOO_BIG = 0x0F,
    LUM_STATUS_NO_MEMORY = 0x10,
    LUM_STATUS_HW_SPI = 0x11,
    LUM_STATUS_HW_ADC = 0x12,
    LUM_STATUS_HW_I2C = 0x13,
    LUM_STATUS_TIMEOUT = 0x14,
    LUM_STATUS_OVERFLOW = 0x15,
    LUM_STATUS_NOT_SUPPORTED = 0x16,
    LUM_STATUS_FLASH = 0x17,
    LUM_STATUS_CRC_MISMATCH = 0x18,
    LUM_STATUS_UNKNOWN_FAULT = 0x19,
};

/* Bit numbers of features (protocol section 6.4). */
enum lum_feature {
    LUM_FEATURE_COMMIT_AT_TICK = 0x00,
    LUM_FEATURE_COMMIT_TRIGGER = 0x01,
    LUM_FEATURE_SWEEP = 0x02,
    LUM_FEATURE_SWEEP_TRIGGER = 0x03,
    LUM_FEATURE_CHANNEL_SENSE = 0x04,
    LUM_FEATURE_FLASH_CONFIG = 0x05,
    LUM_FEATURE_EXTERNAL_LOOP = 0x06,
    LUM_FEATURE_HW_WATCHDOG = 0x07,
    LUM_FEATURE_BOOTLOADER = 0x09,
    LUM_FEATURE_CHIP_TEMPERATURE = 0x0A,
    LUM_FEATURE_SUPPLY_SENSE = 0x0B,
    LUM_FEATURE_CLEAR_ONE = 0x0C,
    LUM_FEATURE_MONITOR_WATCH = 0x0D,
};

/* Fault sources (protocol section 11.3), as bit numbers. */
enum lum_fault_source {
    LUM_FAULT_SOURCE_OVER_TEMPERATURE = 0x00,
    LUM_FAULT_SOURCE_TOTAL_POWER = 0x01,
    LUM_FAULT_SOURCE_CHANNEL_CURRENT = 0x02,
    LUM_FAULT_SOURCE_CHANNEL_VOLTAGE = 0x03,
    LUM_FAULT_SOURCE_SUPPLY = 0x04,
    LUM_FAULT_SOURCE_HW_SPI = 0x05,
    LUM_FAULT_SOURCE_HW_ADC = 0x06,
    LUM_FAULT_SOURCE_HW_I2C = 0x07,
    LUM_FAULT_SOURCE_EXTERNAL_LOOP = 0x08,
    LUM_FAULT_SOURCE_WATCHDOG = 0x09,
    LUM_FAULT_SOURCE_SELF_TEST = 0x0A,
    LUM_FAULT_SOURCE_ESTOP = 0x0B,
    LUM_FAULT_SOURCE_MEMORY = 0x0C,
};

/* State of a fault in a fault record. */
enum lum_fault_state {
    LUM_FAULT_STATE_CLEARED = 0x00,
    LUM_FAULT_STATE_LATCHED = 0x01,
    LUM_FAULT_STATE_PRESENT = 0x02,
};

/* State of the outputs (section 11.1). BOOT and SAFE drive zeros; GRACE keeps outputs on after a watchdog trip. */
enum lum_outputs_state {
    LUM_OUTPUTS_STATE_BOOT = 0x00,
    LUM_OUTPUTS_STATE_READY = 0x01,
    LUM_OUTPUTS_STATE_SWEEP = 0x02,
    LUM_OUTPUTS_STATE_GRACE = 0x03,
    LUM_OUTPUTS_STATE_SAFE = 0x04,
};

/* Unit of dac_full_scale: uV (voltage drive) or uA (current drive). */
enum lum_drive {
    LUM_DRIVE_VOLTAGE = 0x00,
    LUM_DRIVE_CURRENT = 0x01,
};

/* Reaction of the outputs when the watchdog trips (protocol section 11.2). */
enum lum_watchdog_policy {
    LUM_WATCHDOG_POLICY_OFF = 0x00,
    LUM_WATCHDOG_POLICY_RAMP = 0x01,
    LUM_WATCHDOG_POLICY_HOLD = 0x02,
};

/* First byte of a CONFIG request (protocol section 7.1). */
enum lum_config_op {
    LUM_CONFIG_OP_GLOBAL = 0x00,
    LUM_CONFIG_OP_LIMITS = 0x01,
    LUM_CONFIG_OP_APPLY = 0x02,
    LUM_CONFIG_OP_READ_GLOBAL = 0x03,
    LUM_CONFIG_OP_READ_LIMITS = 0x04,
};

/* Time at which the command COMMIT drives the prepared codes (protocol section 8.3). */
enum lum_commit_when {
    LUM_COMMIT_WHEN_NEXT_TICK = 0x00,
    LUM_COMMIT_WHEN_AT_TICK = 0x01,
    LUM_COMMIT_WHEN_TRIGGER = 0x02,
};

/* Initial codes for the command STAGE_SPARSE (protocol section 8.2). */
enum lum_sparse_base {
    LUM_SPARSE_BASE_EMPTY = 0x00,
    LUM_SPARSE_BASE_DRIVEN = 0x01,
};

/* Flags of the command HELLO. */
enum lum_hello_flag {
    LUM_HELLO_FLAG_TAKEOVER = 0x01,
};

/* Flags of the command CONFIG APPLY. */
enum lum_apply_flag {
    LUM_APPLY_FLAG_SAVE = 0x01,
};

/* Flags of the command READBACK. */
enum lum_readback_flag {
    LUM_READBACK_FLAG_CODES = 0x01,
};

/* Counters of the command GET_STATS, in order (protocol section 6.3). */
enum lum_stats_counter {
    LUM_STATS_COUNTER_RX_FRAMES = 0x00,
    LUM_STATS_COUNTER_RX_BYTES = 0x01,
    LUM_STATS_COUNTER_TX_FRAMES = 0x02,
    LUM_STATS_COUNTER_TX_BYTES = 0x03,
    LUM_STATS_COUNTER_BAD_COBS = 0x04,
    LUM_STATS_COUNTER_BAD_SHORT = 0x05,
    LUM_STATS_COUNTER_BAD_CRC = 0x06,
    LUM_STATS_COUNTER_BAD_OVERSIZE = 0x07,
    LUM_STATS_COUNTER_BAD_KIND = 0x08,
    LUM_STATS_COUNTER_BAD_VERSION = 0x09,
    LUM_STATS_COUNTER_BAD_SESSION = 0x0A,
    LUM_STATS_COUNTER_STALE = 0x0B,
    LUM_STATS_COUNTER_REPLAYED = 0x0C,
    LUM_STATS_COUNTER_SEQ_GAPS = 0x0D,
    LUM_STATS_COUNTER_UNKNOWN_COMMAND = 0x0E,
    LUM_STATS_COUNTER_NO_REPLY_ERRORS = 0x0F,
    LUM_STATS_COUNTER_UART_ERRORS = 0x10,
    LUM_STATS_COUNTER_EVENTS_SENT = 0x11,
    LUM_STATS_COUNTER_EVENTS_DROPPED = 0x12,
    LUM_STATS_COUNTER_LATCHES = 0x13,
    LUM_STATS_COUNTER_REFUSED = 0x14,
    LUM_STATS_COUNTER_WD_TRIPS = 0x15,
    LUM_STATS_COUNTER_FAULTS = 0x16,
    LUM_STATS_COUNTER_TICK_OVERRUNS = 0x17,
};

/* Flags of the command SUBSCRIBE. */
enum lum_subscribe_flag {
    LUM_SUBSCRIBE_FLAG_RENEW = 0x01,
};

/* Flags of the command WATCH. */
enum lum_watch_flag {
    LUM_WATCH_FLAG_CLEAR = 0x01,
};

/* Flags in the header of a sweep image (an encoded sweep). */
enum lum_image_flag {
    LUM_IMAGE_FLAG_START_TABLE = 0x01,
};

/* Flags of the start of a sweep. */
enum lum_run_flag {
    LUM_RUN_FLAG_OVERWRITE = 0x01,
    LUM_RUN_FLAG_NO_BASE_CHECK = 0x02,
};

/* Heater codes after the end of a sweep. */
enum lum_end_action {
    LUM_END_ACTION_BASE = 0x00,
    LUM_END_ACTION_KEEP = 0x01,
};

/* Start condition of each point of a sweep. */
enum lum_sweep_trigger {
    LUM_SWEEP_TRIGGER_FREE = 0x00,
    LUM_SWEEP_TRIGGER_EXTERNAL = 0x01,
};

/* State of the last sweep. */
enum lum_run_state {
    LUM_RUN_STATE_NONE = 0x00,
    LUM_RUN_STATE_RUNNING = 0x01,
    LUM_RUN_STATE_PAUSED = 0x02,
    LUM_RUN_STATE_ENDED = 0x03,
};

/* Reason why a sweep ended. */
enum lum_end_reason {
    LUM_END_REASON_COMPLETE = 0x00,
    LUM_END_REASON_ABORTED = 0x01,
    LUM_END_REASON_FAULT = 0x02,
    LUM_END_REASON_WATCHDOG = 0x03,
    LUM_END_REASON_HOST_CHANGED = 0x04,
    LUM_END_REASON_ESTOP = 0x05,
};

/* Marks of a command: may be pipelined, accepts NO_REPLY (SUBSCRIBE: with RENEW), reads only. */
#define LUM_MARK_PIPELINED 0x01u
#define LUM_MARK_NO_REPLY 0x02u
#define LUM_MARK_READ 0x04u

/* X(name, code, least payload, marks) for every command; CONFIG by its op. */
#define LUM_COMMANDS(X) \
    X(HELLO, 0x00u, 24u, LUM_MARK_READ) \
    X(PING, 0x01u, 4u, LUM_MARK_PIPELINED | LUM_MARK_NO_REPLY | LUM_MARK_READ) \
    X(ESTOP, 0x02u, 4u, 0u) \
    X(GET_STATS, 0x03u, 0u, LUM_MARK_PIPELINED | LUM_MARK_READ) \
    X(CONFIG, 0x10u, 1u, 0u) \
    X(STAGE, 0x11u, 10u, LUM_MARK_PIPELINED | LUM_MARK_NO_REPLY) \
    X(STAGE_SPARSE, 0x12u, 8u, LUM_MARK_PIPELINED | LUM_MARK_NO_REPLY) \
    X(COMMIT, 0x13u, 20u, LUM_MARK_PIPELINED) \
    X(SET, 0x14u, 8u, LUM_MARK_PIPELINED) \
    X(READBACK, 0x15u, 6u, LUM_MARK_PIPELINED | LUM_MARK_READ) \
    X(READ_ADC, 0x20u, 8u, LUM_MARK_PIPELINED | LUM_MARK_READ) \
    X(SUBSCRIBE, 0x21u, 16u, LUM_MARK_PIPELINED) \
    X(WATCH, 0x22u, 8u, LUM_MARK_PIPELINED) \
    X(SWEEP_LOAD, 0x30u, 20u, LUM_MARK_PIPELINED) \
    X(SWEEP_START, 0x31u, 20u, 0u) \
    X(SWEEP_READ, 0x32u, 12u, LUM_MARK_PIPELINED | LUM_MARK_READ) \
    X(SWEEP_ACK, 0x33u, 12u, LUM_MARK_PIPELINED | LUM_MARK_NO_REPLY) \
    X(SWEEP_ABORT, 0x34u, 4u, 0u) \
    X(FAULT_LIST, 0x40u, 8u, LUM_MARK_PIPELINED | LUM_MARK_READ) \
    X(FAULT_CLEAR, 0x41u, 4u, 0u)

/* Little-endian integers at any address. */

static inline uint8_t lum_get_u8(const uint8_t *p) { return p[0]; }

static inline uint16_t lum_get_u16(const uint8_t *p) { return (uint16_t)(p[0] | (uint16_t)(p[1] << 8)); }

static inline uint32_t lum_get_u32(const uint8_t *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static inline int16_t lum_get_i16(const uint8_t *p)
{
    const int32_t value = lum_get_u16(p);
    return (int16_t)(value >= 0x8000 ? value - 0x10000 : value);
}

static inline int32_t lum_get_i32(const uint8_t *p)
{
    const int64_t value = lum_get_u32(p);
    return (int32_t)(value >= 0x80000000LL ? value - 0x100000000LL : value);
}

static inline void lum_put_u8(uint8_t *p, uint8_t value) { p[0] = value; }

static inline void lum_put_u16(uint8_t *p, uint16_t value)
{
    p[0] = (uint8_t)(value & 0xFFu);
    p[1] = (uint8_t)(value >> 8);
}

static inline void lum_put_u32(uint8_t *p, uint32_t value)
{
    lum_put_u16(p, (uint16_t)(value & 0xFFFFu));
    lum_put_u16(p + 2, (uint16_t)(value >> 16));
}

static inline void lum_put_i16(uint8_t *p, int16_t value) { lum_put_u16(p, (uint16_t)value); }

static inline void lum_put_i32(uint8_t *p, int32_t value) { lum_put_u32(p, (uint32_t)value); }

/* Whether u32 a is newer than b: (a - b) mod 2^32 is in 1 .. 2^31 - 1 (generations, ticks, ids, limits). */
static inline int lum_is_newer(uint32_t a, uint32_t b) { return a != b && (uint32_t)(a - b) <= 0x7FFFFFFFu; }

/* Whether a bit number is set in a mask word (features, faults, fault_enable). */
#define LUM_BIT_SET(word, bit) ((((uint32_t)(word)) >> (bit) & 1u) != 0u)

/* FrameHeader */
#define LUM_FRAME_HEADER_SIZE 8u
#define LUM_FRAME_HEADER_KIND_VERSION_OFFSET 0u
#define LUM_FRAME_HEADER_FLAGS_OFFSET 1u
#define LUM_FRAME_HEADER_COMMAND_OFFSET 2u
#define LUM_FRAME_HEADER_STATUS_OFFSET 3u
#define LUM_FRAME_HEADER_SEQ_OFFSET 4u
#define LUM_FRAME_HEADER_SESSION_OFFSET 6u

struct lum_frame_header {
    uint8_t kind_version; /* low nibble 0 REQ, 1 RSP, 2 EVT; high nibble protocol major */
    uint8_t flags; /* b0 MORE, b1 RETRY, b2 NO_REPLY, b7 FAULT_PENDING [bits] */
    uint8_t command; /* command; in an EVT the event code */
    uint8_t status; /* REQ 0; RSP status code; EVT stream id */
    uint16_t seq; /* REQ host counter; RSP echo; EVT low 16 bits of the stream's event number */
    uint16_t session; /* REQ chosen by the host; RSP echo; EVT current session */
};

static inline void lum_frame_header_read(struct lum_frame_header *m, const uint8_t *p)
{
    m->kind_version = lum_get_u8(p + 0);
    m->flags = lum_get_u8(p + 1);
    m->command = lum_get_u8(p + 2);
    m->status = lum_get_u8(p + 3);
    m->seq = lum_get_u16(p + 4);
    m->session = lum_get_u16(p + 6);
}

static inline void lum_frame_header_write(const struct lum_frame_header *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->kind_version);
    lum_put_u8(p + 1, m->flags);
    lum_put_u8(p + 2, m->command);
    lum_put_u8(p + 3, m->status);
    lum_put_u16(p + 4, m->seq);
    lum_put_u16(p + 6, m->session);
}

/* LimitRecord */
#define LUM_LIMIT_RECORD_SIZE 8u
#define LUM_LIMIT_RECORD_CODE_MAX_OFFSET 0u
#define LUM_LIMIT_RECORD_LOAD_OHM_OFFSET 2u
#define LUM_LIMIT_RECORD_TRIP_UA_OFFSET 4u

struct lum_limit_record {
    uint16_t code_max; /* largest code accepted on the channel [code] */
    uint16_t load_ohm; /* heater resistance; 0 = not fitted, then code_max is 0 [Ohm] */
    uint32_t trip_ua; /* measured over-current trip; 0 = none [uA] */
};

static inline void lum_limit_record_read(struct lum_limit_record *m, const uint8_t *p)
{
    m->code_max = lum_get_u16(p + 0);
    m->load_ohm = lum_get_u16(p + 2);
    m->trip_ua = lum_get_u32(p + 4);
}

static inline void lum_limit_record_write(const struct lum_limit_record *m, uint8_t *p)
{
    lum_put_u16(p + 0, m->code_max);
    lum_put_u16(p + 2, m->load_ohm);
    lum_put_u32(p + 4, m->trip_ua);
}

/* PairRecord */
#define LUM_PAIR_RECORD_SIZE 4u
#define LUM_PAIR_RECORD_CHANNEL_OFFSET 0u
#define LUM_PAIR_RECORD_CODE_OFFSET 2u

struct lum_pair_record {
    uint16_t channel; /* drive channel [channel], 0..n_dac-1 */
    uint16_t code; /* its new code [code], 0..code_max */
};

static inline void lum_pair_record_read(struct lum_pair_record *m, const uint8_t *p)
{
    m->channel = lum_get_u16(p + 0);
    m->code = lum_get_u16(p + 2);
}

static inline void lum_pair_record_write(const struct lum_pair_record *m, uint8_t *p)
{
    lum_put_u16(p + 0, m->channel);
    lum_put_u16(p + 2, m->code);
}

/* WatchRecord */
#define LUM_WATCH_RECORD_SIZE 8u
#define LUM_WATCH_RECORD_CHANNEL_OFFSET 0u
#define LUM_WATCH_RECORD_DARK_BELOW_OFFSET 2u
#define LUM_WATCH_RECORD_LIGHT_FROM_OFFSET 4u
#define LUM_WATCH_RECORD_HOLD_TICKS_OFFSET 6u

struct lum_watch_record {
    uint16_t channel; /* monitor channel [channel], 0..n_adc-1 */
    uint16_t dark_below; /* dark below this code; 0 = watch it no longer [code] */
    uint16_t light_from; /* light again from this code on [code], dark_below..65535 */
    uint16_t hold_ticks; /* time a reading has to stay before it counts [ticks] */
};

static inline void lum_watch_record_read(struct lum_watch_record *m, const uint8_t *p)
{
    m->channel = lum_get_u16(p + 0);
    m->dark_below = lum_get_u16(p + 2);
    m->light_from = lum_get_u16(p + 4);
    m->hold_ticks = lum_get_u16(p + 6);
}

static inline void lum_watch_record_write(const struct lum_watch_record *m, uint8_t *p)
{
    lum_put_u16(p + 0, m->channel);
    lum_put_u16(p + 2, m->dark_below);
    lum_put_u16(p + 4, m->light_from);
    lum_put_u16(p + 6, m->hold_ticks);
}

/* ErrorReply */
#define LUM_ERROR_REPLY_SIZE 13u
#define LUM_ERROR_REPLY_CHANNEL_OFFSET 0u
#define LUM_ERROR_REPLY_CHANNEL_NONE 65535u
#define LUM_ERROR_REPLY_INDEX_OFFSET 2u
#define LUM_ERROR_REPLY_INDEX_NONE 65535u
#define LUM_ERROR_REPLY_VALUE_OFFSET 4u
#define LUM_ERROR_REPLY_LIMIT_OFFSET 8u
#define LUM_ERROR_REPLY_TEXT_LEN_OFFSET 12u
#define LUM_ERROR_REPLY_TEXT_OFFSET 13u
#define LUM_ERROR_REPLY_TEXT_ELEMENT 1u

struct lum_error_reply {
    uint16_t channel; /* first offending channel, by code [channel] */
    uint16_t index; /* point number of a sweep, saturates at 65534 */
    int32_t value; /* what was asked or found [by code] */
    int32_t limit; /* what is allowed [by code] */
    uint8_t text_len; /* length of the hint [B], 0..32 */
};

static inline void lum_error_reply_read(struct lum_error_reply *m, const uint8_t *p)
{
    m->channel = lum_get_u16(p + 0);
    m->index = lum_get_u16(p + 2);
    m->value = lum_get_i32(p + 4);
    m->limit = lum_get_i32(p + 8);
    m->text_len = lum_get_u8(p + 12);
}

static inline void lum_error_reply_write(const struct lum_error_reply *m, uint8_t *p)
{
    lum_put_u16(p + 0, m->channel);
    lum_put_u16(p + 2, m->index);
    lum_put_i32(p + 4, m->value);
    lum_put_i32(p + 8, m->limit);
    lum_put_u8(p + 12, m->text_len);
}

/* HelloRequest, HELLO */
#define LUM_HELLO_REQUEST_SIZE 24u
#define LUM_HELLO_REQUEST_PROTO_MIN_OFFSET 0u
#define LUM_HELLO_REQUEST_PROTO_MAX_OFFSET 1u
#define LUM_HELLO_REQUEST_HELLO_FLAGS_OFFSET 2u
#define LUM_HELLO_REQUEST_HOST_RX_MAX_OFFSET 4u
#define LUM_HELLO_REQUEST_NAME_OFFSET 8u

struct lum_hello_request {
    uint8_t proto_min; /* lowest protocol major the host speaks, 1..15 */
    uint8_t proto_max; /* highest protocol major the host speaks, 1..15 */
    uint8_t hello_flags; /* b0 TAKEOVER: replace a live session of another host [bits] */
    uint16_t host_rx_max; /* largest frame the host accepts [B on the wire], 256..65535 */
    char name[16]; /* host name, shown to a refused second host */
};

static inline void lum_hello_request_read(struct lum_hello_request *m, const uint8_t *p)
{
    m->proto_min = lum_get_u8(p + 0);
    m->proto_max = lum_get_u8(p + 1);
    m->hello_flags = lum_get_u8(p + 2);
    m->host_rx_max = lum_get_u16(p + 4);
    memcpy(m->name, p + 8, 16);
}

static inline void lum_hello_request_write(const struct lum_hello_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->proto_min);
    lum_put_u8(p + 1, m->proto_max);
    lum_put_u8(p + 2, m->hello_flags);
    lum_put_u8(p + 3, 0u);
    lum_put_u16(p + 4, m->host_rx_max);
    lum_put_u16(p + 6, 0u);
    memcpy(p + 8, m->name, 16);
}

/* HelloReply, HELLO */
#define LUM_HELLO_REPLY_SIZE 104u
#define LUM_HELLO_REPLY_PROTO_OFFSET 0u
#define LUM_HELLO_REPLY_WINDOW_OFFSET 1u
#define LUM_HELLO_REPLY_FW_RX_MAX_OFFSET 2u
#define LUM_HELLO_REPLY_FW_TX_MAX_OFFSET 4u
#define LUM_HELLO_REPLY_N_DAC_OFFSET 6u
#define LUM_HELLO_REPLY_N_ADC_OFFSET 8u
#define LUM_HELLO_REPLY_DAC_BITS_OFFSET 10u
#define LUM_HELLO_REPLY_ADC_BITS_OFFSET 11u
#define LUM_HELLO_REPLY_N_BANKS_OFFSET 12u
#define LUM_HELLO_REPLY_N_STREAMS_OFFSET 13u
#define LUM_HELLO_REPLY_OUTPUTS_STATE_OFFSET 14u
#define LUM_HELLO_REPLY_DRIVE_OFFSET 15u
#define LUM_HELLO_REPLY_DAC_FULL_SCALE_OFFSET 16u
#define LUM_HELLO_REPLY_ADC_FULL_SCALE_OFFSET 20u
#define LUM_HELLO_REPLY_TICK_US_OFFSET 24u
#define LUM_HELLO_REPLY_T_CMD_MS_OFFSET 26u
#define LUM_HELLO_REPLY_T_SLOW_MS_OFFSET 28u
#define LUM_HELLO_REPLY_LATCH_SKEW_US_OFFSET 30u
#define LUM_HELLO_REPLY_ADC_SCAN_US_OFFSET 32u
#define LUM_HELLO_REPLY_FEATURES_OFFSET 36u
#define LUM_HELLO_REPLY_SCHEMA_CRC32_OFFSET 40u
#define LUM_HELLO_REPLY_BOOT_ID_OFFSET 44u
#define LUM_HELLO_REPLY_UPTIME_MS_OFFSET 48u
#define LUM_HELLO_REPLY_FAULTS_OFFSET 52u
#define LUM_HELLO_REPLY_ACTIVE_GENERATION_OFFSET 56u
#define LUM_HELLO_REPLY_CONFIG_CRC32_OFFSET 60u
#define LUM_HELLO_REPLY_SWEEP_MEM_OFFSET 64u
#define LUM_HELLO_REPLY_SWEEP_RING_OFFSET 68u
#define LUM_HELLO_REPLY_SERIAL_OFFSET 72u
#define LUM_HELLO_REPLY_FW_VERSION_OFFSET 88u

struct lum_hello_reply {
    uint8_t proto; /* chosen major, the highest both sides speak, 1..15 */
    uint8_t window; /* depth of the reply ring and span of outstanding requests [frames], 1,2,4,8,16 */
    uint16_t fw_rx_max; /* largest frame the board accepts [B on the wire], 256..65535 */
    uint16_t fw_tx_max; /* largest frame the board sends [B on the wire], 256..host_rx_max */
    uint16_t n_dac; /* drive channels, numbered from 0 [channels], 1..65535 */
    uint16_t n_adc; /* monitor channels, numbered from 0 [channels], 0..65535 */
    uint8_t dac_bits; /* native resolution of the converters [bit], 8..16 */
    uint8_t adc_bits; /* native resolution of the monitors [bit], 0,8,9,10,11,12,13,14,15,16 */
    uint8_t n_banks; /* staging banks, 1..16 */
    uint8_t n_streams; /* telemetry streams, ids 2 to 1 + n_streams, 0..14 */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint8_t drive; /* 0 voltage drive, 1 current drive, 0,1 */
    uint32_t dac_full_scale; /* output at code 65535, unit by drive [uV or uA], 1..100000000 */
    uint32_t adc_full_scale; /* photocurrent at code 65535 [nA] */
    uint16_t tick_us; /* length of one tick [us], 1..65535 */
    uint16_t t_cmd_ms; /* worst time from last request byte to first reply byte [ms], 1..65535 */
    uint16_t t_slow_ms; /* the same for commands marked S [ms], 1..65535 */
    uint16_t latch_skew_us; /* worst spread of the outputs in one latch; 65535 = that or more [us] */
    uint16_t adc_scan_us; /* one conversion of all monitor channels [us] */
    uint32_t features; /* section 6.4 [bits] */
    uint32_t schema_crc32; /* CRC-32 of the canonical schema text */
    uint32_t boot_id; /* random per power-up */
    uint32_t uptime_ms; /* since power-up, wraps [ms] */
    uint32_t faults; /* latched fault sources [bits] */
    uint32_t active_generation; /* generation of the last latch; 0 after power-up */
    uint32_t config_crc32; /* CRC of the active configuration; 0 = none */
    uint32_t sweep_mem; /* program memory for sweeps [B] */
    uint32_t sweep_ring; /* result memory of sweeps [u16 values] */
    char serial[16]; /* serial number */
    char fw_version[16]; /* firmware version */
};

static inline void lum_hello_reply_read(struct lum_hello_reply *m, const uint8_t *p)
{
    m->proto = lum_get_u8(p + 0);
    m->window = lum_get_u8(p + 1);
    m->fw_rx_max = lum_get_u16(p + 2);
    m->fw_tx_max = lum_get_u16(p + 4);
    m->n_dac = lum_get_u16(p + 6);
    m->n_adc = lum_get_u16(p + 8);
    m->dac_bits = lum_get_u8(p + 10);
    m->adc_bits = lum_get_u8(p + 11);
    m->n_banks = lum_get_u8(p + 12);
    m->n_streams = lum_get_u8(p + 13);
    m->outputs_state = lum_get_u8(p + 14);
    m->drive = lum_get_u8(p + 15);
    m->dac_full_scale = lum_get_u32(p + 16);
    m->adc_full_scale = lum_get_u32(p + 20);
    m->tick_us = lum_get_u16(p + 24);
    m->t_cmd_ms = lum_get_u16(p + 26);
    m->t_slow_ms = lum_get_u16(p + 28);
    m->latch_skew_us = lum_get_u16(p + 30);
    m->adc_scan_us = lum_get_u16(p + 32);
    m->features = lum_get_u32(p + 36);
    m->schema_crc32 = lum_get_u32(p + 40);
    m->boot_id = lum_get_u32(p + 44);
    m->uptime_ms = lum_get_u32(p + 48);
    m->faults = lum_get_u32(p + 52);
    m->active_generation = lum_get_u32(p + 56);
    m->config_crc32 = lum_get_u32(p + 60);
    m->sweep_mem = lum_get_u32(p + 64);
    m->sweep_ring = lum_get_u32(p + 68);
    memcpy(m->serial, p + 72, 16);
    memcpy(m->fw_version, p + 88, 16);
}

static inline void lum_hello_reply_write(const struct lum_hello_reply *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->proto);
    lum_put_u8(p + 1, m->window);
    lum_put_u16(p + 2, m->fw_rx_max);
    lum_put_u16(p + 4, m->fw_tx_max);
    lum_put_u16(p + 6, m->n_dac);
    lum_put_u16(p + 8, m->n_adc);
    lum_put_u8(p + 10, m->dac_bits);
    lum_put_u8(p + 11, m->adc_bits);
    lum_put_u8(p + 12, m->n_banks);
    lum_put_u8(p + 13, m->n_streams);
    lum_put_u8(p + 14, m->outputs_state);
    lum_put_u8(p + 15, m->drive);
    lum_put_u32(p + 16, m->dac_full_scale);
    lum_put_u32(p + 20, m->adc_full_scale);
    lum_put_u16(p + 24, m->tick_us);
    lum_put_u16(p + 26, m->t_cmd_ms);
    lum_put_u16(p + 28, m->t_slow_ms);
    lum_put_u16(p + 30, m->latch_skew_us);
    lum_put_u16(p + 32, m->adc_scan_us);
    lum_put_u16(p + 34, 0u);
    lum_put_u32(p + 36, m->features);
    lum_put_u32(p + 40, m->schema_crc32);
    lum_put_u32(p + 44, m->boot_id);
    lum_put_u32(p + 48, m->uptime_ms);
    lum_put_u32(p + 52, m->faults);
    lum_put_u32(p + 56, m->active_generation);
    lum_put_u32(p + 60, m->config_crc32);
    lum_put_u32(p + 64, m->sweep_mem);
    lum_put_u32(p + 68, m->sweep_ring);
    memcpy(p + 72, m->serial, 16);
    memcpy(p + 88, m->fw_version, 16);
}

/* PingRequest, PING */
#define LUM_PING_REQUEST_SIZE 4u
#define LUM_PING_REQUEST_TOKEN_OFFSET 0u

struct lum_ping_request {
    uint32_t token; /* echoed */
};

static inline void lum_ping_request_read(struct lum_ping_request *m, const uint8_t *p)
{
    m->token = lum_get_u32(p + 0);
}

static inline void lum_ping_request_write(const struct lum_ping_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->token);
}

/* PingReply, PING */
#define LUM_PING_REPLY_SIZE 16u
#define LUM_PING_REPLY_TOKEN_OFFSET 0u
#define LUM_PING_REPLY_TICK_OFFSET 4u
#define LUM_PING_REPLY_UPTIME_MS_OFFSET 8u
#define LUM_PING_REPLY_OUTPUTS_STATE_OFFSET 12u
#define LUM_PING_REPLY_SESSION_OFFSET 14u

struct lum_ping_reply {
    uint32_t token; /* echo */
    uint32_t tick; /* board time when the reply was built [ticks] */
    uint32_t uptime_ms; /* wraps [ms] */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint16_t session; /* current session, 0 = none */
};

static inline void lum_ping_reply_read(struct lum_ping_reply *m, const uint8_t *p)
{
    m->token = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->uptime_ms = lum_get_u32(p + 8);
    m->outputs_state = lum_get_u8(p + 12);
    m->session = lum_get_u16(p + 14);
}

static inline void lum_ping_reply_write(const struct lum_ping_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->token);
    lum_put_u32(p + 4, m->tick);
    lum_put_u32(p + 8, m->uptime_ms);
    lum_put_u8(p + 12, m->outputs_state);
    lum_put_u8(p + 13, 0u);
    lum_put_u16(p + 14, m->session);
}

/* EstopRequest, ESTOP */
#define LUM_ESTOP_REQUEST_SIZE 4u
#define LUM_ESTOP_REQUEST_MAGIC_OFFSET 0u

struct lum_estop_request {
    char magic[4]; /* anything else is BAD_VALUE, STOP */
};

static inline void lum_estop_request_read(struct lum_estop_request *m, const uint8_t *p)
{
    memcpy(m->magic, p + 0, 4);
}

static inline void lum_estop_request_write(const struct lum_estop_request *m, uint8_t *p)
{
    memcpy(p + 0, m->magic, 4);
}

/* EstopReply, ESTOP */
#define LUM_ESTOP_REPLY_SIZE 12u
#define LUM_ESTOP_REPLY_FAULT_ID_OFFSET 0u
#define LUM_ESTOP_REPLY_TICK_OFFSET 4u
#define LUM_ESTOP_REPLY_OUTPUTS_STATE_OFFSET 8u

struct lum_estop_reply {
    uint32_t fault_id; /* the latched ESTOP fault */
    uint32_t tick; /* when the outputs went to zero [ticks] */
    uint8_t outputs_state; /* SAFE, 0..4 */
};

static inline void lum_estop_reply_read(struct lum_estop_reply *m, const uint8_t *p)
{
    m->fault_id = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->outputs_state = lum_get_u8(p + 8);
}

static inline void lum_estop_reply_write(const struct lum_estop_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->fault_id);
    lum_put_u32(p + 4, m->tick);
    lum_put_u8(p + 8, m->outputs_state);
    lum_put_u8(p + 9, 0u);
    lum_put_u16(p + 10, 0u);
}

/* GetStatsRequest, GET_STATS */
#define LUM_GET_STATS_REQUEST_SIZE 0u

/* GetStatsReply, GET_STATS */
#define LUM_GET_STATS_REPLY_SIZE 16u
#define LUM_GET_STATS_REPLY_UPTIME_MS_OFFSET 0u
#define LUM_GET_STATS_REPLY_TICK_OFFSET 4u
#define LUM_GET_STATS_REPLY_SESSION_OFFSET 8u
#define LUM_GET_STATS_REPLY_OUTPUTS_STATE_OFFSET 10u
#define LUM_GET_STATS_REPLY_N_OFFSET 12u
#define LUM_GET_STATS_REPLY_COUNTERS_OFFSET 16u
#define LUM_GET_STATS_REPLY_COUNTERS_ELEMENT 4u

struct lum_get_stats_reply {
    uint32_t uptime_ms; /* wraps [ms] */
    uint32_t tick; /* wraps [ticks] */
    uint16_t session; /* current session */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint16_t n; /* number of counters that follow, 24.. */
};

static inline void lum_get_stats_reply_read(struct lum_get_stats_reply *m, const uint8_t *p)
{
    m->uptime_ms = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->session = lum_get_u16(p + 8);
    m->outputs_state = lum_get_u8(p + 10);
    m->n = lum_get_u16(p + 12);
}

static inline void lum_get_stats_reply_write(const struct lum_get_stats_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->uptime_ms);
    lum_put_u32(p + 4, m->tick);
    lum_put_u16(p + 8, m->session);
    lum_put_u8(p + 10, m->outputs_state);
    lum_put_u8(p + 11, 0u);
    lum_put_u16(p + 12, m->n);
    lum_put_u16(p + 14, 0u);
}

/* ConfigGlobalRequest, CONFIG */
#define LUM_CONFIG_GLOBAL_REQUEST_SIZE 20u
#define LUM_CONFIG_GLOBAL_REQUEST_OP_OFFSET 0u
#define LUM_CONFIG_GLOBAL_REQUEST_OP 0u
#define LUM_CONFIG_GLOBAL_REQUEST_WD_POLICY_OFFSET 1u
#define LUM_CONFIG_GLOBAL_REQUEST_WD_TIMEOUT_MS_OFFSET 2u
#define LUM_CONFIG_GLOBAL_REQUEST_WD_PARAM_MS_OFFSET 4u
#define LUM_CONFIG_GLOBAL_REQUEST_TOTAL_POWER_MW_OFFSET 8u
#define LUM_CONFIG_GLOBAL_REQUEST_FAULT_ENABLE_OFFSET 12u
#define LUM_CONFIG_GLOBAL_REQUEST_TEMP_TRIP_OFFSET 16u
#define LUM_CONFIG_GLOBAL_REQUEST_TEMP_TRIP_NONE 32767u
#define LUM_CONFIG_GLOBAL_REQUEST_SUPPLY_MIN_MV_OFFSET 18u
#define LUM_CONFIG_GLOBAL_REQUEST_SUPPLY_MIN_MV_NONE 0u

struct lum_config_global_request {
    uint8_t wd_policy; /* 0 OFF, 1 RAMP, 2 HOLD, 0,1,2 */
    uint16_t wd_timeout_ms; /* host silence that trips the watchdog [ms], 100..60000 */
    uint32_t wd_param_ms; /* OFF 0; RAMP 1..60000 ramp time; HOLD 1..3600000 [ms], by wd_policy */
    uint32_t total_power_mw; /* cap on the computed power of a whole table [mW], 1..4000000 */
    uint32_t fault_enable; /* optional fault sources to enable [bits] */
    int16_t temp_trip; /* chip over-temperature threshold [0.01 deg C], -4000..15000 */
    uint16_t supply_min_mv; /* supply under-voltage threshold [mV] */
};

static inline void lum_config_global_request_read(struct lum_config_global_request *m, const uint8_t *p)
{
    m->wd_policy = lum_get_u8(p + 1);
    m->wd_timeout_ms = lum_get_u16(p + 2);
    m->wd_param_ms = lum_get_u32(p + 4);
    m->total_power_mw = lum_get_u32(p + 8);
    m->fault_enable = lum_get_u32(p + 12);
    m->temp_trip = lum_get_i16(p + 16);
    m->supply_min_mv = lum_get_u16(p + 18);
}

static inline void lum_config_global_request_write(const struct lum_config_global_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, 0u);
    lum_put_u8(p + 1, m->wd_policy);
    lum_put_u16(p + 2, m->wd_timeout_ms);
    lum_put_u32(p + 4, m->wd_param_ms);
    lum_put_u32(p + 8, m->total_power_mw);
    lum_put_u32(p + 12, m->fault_enable);
    lum_put_i16(p + 16, m->temp_trip);
    lum_put_u16(p + 18, m->supply_min_mv);
}

/* ConfigLimitsRequest, CONFIG */
#define LUM_CONFIG_LIMITS_REQUEST_SIZE 8u
#define LUM_CONFIG_LIMITS_REQUEST_OP_OFFSET 0u
#define LUM_CONFIG_LIMITS_REQUEST_OP 1u
#define LUM_CONFIG_LIMITS_REQUEST_START_OFFSET 2u
#define LUM_CONFIG_LIMITS_REQUEST_COUNT_OFFSET 4u
#define LUM_CONFIG_LIMITS_REQUEST_LIMITS_OFFSET 8u
#define LUM_CONFIG_LIMITS_REQUEST_LIMITS_ELEMENT 8u

struct lum_config_limits_request {
    uint16_t start; /* first channel [channel], 0..n_dac-1 */
    uint16_t count; /* records that follow [channels], 1..n_dac-start */
};

static inline void lum_config_limits_request_read(struct lum_config_limits_request *m, const uint8_t *p)
{
    m->start = lum_get_u16(p + 2);
    m->count = lum_get_u16(p + 4);
}

static inline void lum_config_limits_request_write(const struct lum_config_limits_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, 1u);
    lum_put_u8(p + 1, 0u);
    lum_put_u16(p + 2, m->start);
    lum_put_u16(p + 4, m->count);
    lum_put_u16(p + 6, 0u);
}

/* ConfigApplyRequest, CONFIG */
#define LUM_CONFIG_APPLY_REQUEST_SIZE 8u
#define LUM_CONFIG_APPLY_REQUEST_OP_OFFSET 0u
#define LUM_CONFIG_APPLY_REQUEST_OP 2u
#define LUM_CONFIG_APPLY_REQUEST_APPLY_FLAGS_OFFSET 1u
#define LUM_CONFIG_APPLY_REQUEST_COUNT_OFFSET 2u
#define LUM_CONFIG_APPLY_REQUEST_CONFIG_CRC32_OFFSET 4u

struct lum_config_apply_request {
    uint8_t apply_flags; /* b0 SAVE: also write to flash (feature 5) [bits] */
    uint16_t count; /* size of the table the host believes in [channels], n_dac */
    uint32_t config_crc32; /* CRC of the canonical configuration, 1.. */
};

static inline void lum_config_apply_request_read(struct lum_config_apply_request *m, const uint8_t *p)
{
    m->apply_flags = lum_get_u8(p + 1);
    m->count = lum_get_u16(p + 2);
    m->config_crc32 = lum_get_u32(p + 4);
}

static inline void lum_config_apply_request_write(const struct lum_config_apply_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, 2u);
    lum_put_u8(p + 1, m->apply_flags);
    lum_put_u16(p + 2, m->count);
    lum_put_u32(p + 4, m->config_crc32);
}

/* ConfigReadGlobalRequest, CONFIG */
#define LUM_CONFIG_READ_GLOBAL_REQUEST_SIZE 1u
#define LUM_CONFIG_READ_GLOBAL_REQUEST_OP_OFFSET 0u
#define LUM_CONFIG_READ_GLOBAL_REQUEST_OP 3u

/* ConfigGlobalReply, CONFIG */
#define LUM_CONFIG_GLOBAL_REPLY_SIZE 20u
#define LUM_CONFIG_GLOBAL_REPLY_OP_OFFSET 0u
#define LUM_CONFIG_GLOBAL_REPLY_OP 3u
#define LUM_CONFIG_GLOBAL_REPLY_WD_POLICY_OFFSET 1u
#define LUM_CONFIG_GLOBAL_REPLY_WD_TIMEOUT_MS_OFFSET 2u
#define LUM_CONFIG_GLOBAL_REPLY_WD_PARAM_MS_OFFSET 4u
#define LUM_CONFIG_GLOBAL_REPLY_TOTAL_POWER_MW_OFFSET 8u
#define LUM_CONFIG_GLOBAL_REPLY_FAULT_ENABLE_OFFSET 12u
#define LUM_CONFIG_GLOBAL_REPLY_TEMP_TRIP_OFFSET 16u
#define LUM_CONFIG_GLOBAL_REPLY_TEMP_TRIP_NONE 32767u
#define LUM_CONFIG_GLOBAL_REPLY_SUPPLY_MIN_MV_OFFSET 18u
#define LUM_CONFIG_GLOBAL_REPLY_SUPPLY_MIN_MV_NONE 0u

struct lum_config_global_reply {
    uint8_t wd_policy; /* 0 OFF, 1 RAMP, 2 HOLD, 0,1,2 */
    uint16_t wd_timeout_ms; /* host silence that trips the watchdog [ms], 100..60000 */
    uint32_t wd_param_ms; /* OFF 0; RAMP 1..60000 ramp time; HOLD 1..3600000 [ms], by wd_policy */
    uint32_t total_power_mw; /* cap on the computed power of a whole table [mW], 1..4000000 */
    uint32_t fault_enable; /* optional fault sources to enable [bits] */
    int16_t temp_trip; /* chip over-temperature threshold [0.01 deg C], -4000..15000 */
    uint16_t supply_min_mv; /* supply under-voltage threshold [mV] */
};

static inline void lum_config_global_reply_read(struct lum_config_global_reply *m, const uint8_t *p)
{
    m->wd_policy = lum_get_u8(p + 1);
    m->wd_timeout_ms = lum_get_u16(p + 2);
    m->wd_param_ms = lum_get_u32(p + 4);
    m->total_power_mw = lum_get_u32(p + 8);
    m->fault_enable = lum_get_u32(p + 12);
    m->temp_trip = lum_get_i16(p + 16);
    m->supply_min_mv = lum_get_u16(p + 18);
}

static inline void lum_config_global_reply_write(const struct lum_config_global_reply *m, uint8_t *p)
{
    lum_put_u8(p + 0, 3u);
    lum_put_u8(p + 1, m->wd_policy);
    lum_put_u16(p + 2, m->wd_timeout_ms);
    lum_put_u32(p + 4, m->wd_param_ms);
    lum_put_u32(p + 8, m->total_power_mw);
    lum_put_u32(p + 12, m->fault_enable);
    lum_put_i16(p + 16, m->temp_trip);
    lum_put_u16(p + 18, m->supply_min_mv);
}

/* ConfigReadLimitsRequest, CONFIG */
#define LUM_CONFIG_READ_LIMITS_REQUEST_SIZE 6u
#define LUM_CONFIG_READ_LIMITS_REQUEST_OP_OFFSET 0u
#define LUM_CONFIG_READ_LIMITS_REQUEST_OP 4u
#define LUM_CONFIG_READ_LIMITS_REQUEST_START_OFFSET 2u
#define LUM_CONFIG_READ_LIMITS_REQUEST_COUNT_OFFSET 4u

struct lum_config_read_limits_request {
    uint16_t start; /* first channel [channel], 0..n_dac-1 */
    uint16_t count; /* records wanted [channels], 1..n_dac-start */
};

static inline void lum_config_read_limits_request_read(struct lum_config_read_limits_request *m, const uint8_t *p)
{
    m->start = lum_get_u16(p + 2);
    m->count = lum_get_u16(p + 4);
}

static inline void lum_config_read_limits_request_write(const struct lum_config_read_limits_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, 4u);
    lum_put_u8(p + 1, 0u);
    lum_put_u16(p + 2, m->start);
    lum_put_u16(p + 4, m->count);
}

/* ConfigLimitsReply, CONFIG */
#define LUM_CONFIG_LIMITS_REPLY_SIZE 8u
#define LUM_CONFIG_LIMITS_REPLY_OP_OFFSET 0u
#define LUM_CONFIG_LIMITS_REPLY_OP 4u
#define LUM_CONFIG_LIMITS_REPLY_START_OFFSET 2u
#define LUM_CONFIG_LIMITS_REPLY_COUNT_OFFSET 4u
#define LUM_CONFIG_LIMITS_REPLY_LIMITS_OFFSET 8u
#define LUM_CONFIG_LIMITS_REPLY_LIMITS_ELEMENT 8u

struct lum_config_limits_reply {
    uint16_t start; /* first channel [channel], 0..n_dac-1 */
    uint16_t count; /* records that follow [channels], 1..n_dac-start */
};

static inline void lum_config_limits_reply_read(struct lum_config_limits_reply *m, const uint8_t *p)
{
    m->start = lum_get_u16(p + 2);
    m->count = lum_get_u16(p + 4);
}

static inline void lum_config_limits_reply_write(const struct lum_config_limits_reply *m, uint8_t *p)
{
    lum_put_u8(p + 0, 4u);
    lum_put_u8(p + 1, 0u);
    lum_put_u16(p + 2, m->start);
    lum_put_u16(p + 4, m->count);
    lum_put_u16(p + 6, 0u);
}

/* ConfigReply, CONFIG */
#define LUM_CONFIG_REPLY_SIZE 8u
#define LUM_CONFIG_REPLY_OP_OFFSET 0u
#define LUM_CONFIG_REPLY_OUTPUTS_STATE_OFFSET 1u
#define LUM_CONFIG_REPLY_PENDING_OFFSET 2u
#define LUM_CONFIG_REPLY_CONFIG_CRC32_OFFSET 4u

struct lum_config_reply {
    uint8_t op; /* echo, 0,1,2 */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint16_t pending; /* channels with a pending limit record [channels] */
    uint32_t config_crc32; /* active configuration, 0 = none */
};

static inline void lum_config_reply_read(struct lum_config_reply *m, const uint8_t *p)
{
    m->op = lum_get_u8(p + 0);
    m->outputs_state = lum_get_u8(p + 1);
    m->pending = lum_get_u16(p + 2);
    m->config_crc32 = lum_get_u32(p + 4);
}

static inline void lum_config_reply_write(const struct lum_config_reply *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->op);
    lum_put_u8(p + 1, m->outputs_state);
    lum_put_u16(p + 2, m->pending);
    lum_put_u32(p + 4, m->config_crc32);
}

/* StageRequest, STAGE */
#define LUM_STAGE_REQUEST_SIZE 10u
#define LUM_STAGE_REQUEST_BANK_GENERATION_OFFSET 0u
#define LUM_STAGE_REQUEST_BANK_OFFSET 4u
#define LUM_STAGE_REQUEST_START_OFFSET 6u
#define LUM_STAGE_REQUEST_COUNT_OFFSET 8u
#define LUM_STAGE_REQUEST_CODES_OFFSET 10u
#define LUM_STAGE_REQUEST_CODES_ELEMENT 2u

struct lum_stage_request {
    uint32_t bank_generation; /* identifies this content of the bank */
    uint8_t bank; /* staging bank, 0..n_banks-1 */
    uint16_t start; /* first channel [channel], 0..n_dac-1 */
    uint16_t count; /* codes that follow [codes], 1..n_dac-start */
};

static inline void lum_stage_request_read(struct lum_stage_request *m, const uint8_t *p)
{
    m->bank_generation = lum_get_u32(p + 0);
    m->bank = lum_get_u8(p + 4);
    m->start = lum_get_u16(p + 6);
    m->count = lum_get_u16(p + 8);
}

static inline void lum_stage_request_write(const struct lum_stage_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->bank_generation);
    lum_put_u8(p + 4, m->bank);
    lum_put_u8(p + 5, 0u);
    lum_put_u16(p + 6, m->start);
    lum_put_u16(p + 8, m->count);
}

/* StageSparseRequest, STAGE_SPARSE */
#define LUM_STAGE_SPARSE_REQUEST_SIZE 8u
#define LUM_STAGE_SPARSE_REQUEST_BANK_GENERATION_OFFSET 0u
#define LUM_STAGE_SPARSE_REQUEST_BANK_OFFSET 4u
#define LUM_STAGE_SPARSE_REQUEST_BASE_OFFSET 5u
#define LUM_STAGE_SPARSE_REQUEST_COUNT_OFFSET 6u
#define LUM_STAGE_SPARSE_REQUEST_PAIRS_OFFSET 8u
#define LUM_STAGE_SPARSE_REQUEST_PAIRS_ELEMENT 4u

struct lum_stage_sparse_request {
    uint32_t bank_generation; /* identifies this content of the bank */
    uint8_t bank; /* staging bank, 0..n_banks-1 */
    uint8_t base; /* when this frame opens the bank: 0 empty, 1 copy of the driven table, 0,1 */
    uint16_t count; /* pairs that follow [pairs], 1..65535 */
};

static inline void lum_stage_sparse_request_read(struct lum_stage_sparse_request *m, const uint8_t *p)
{
    m->bank_generation = lum_get_u32(p + 0);
    m->bank = lum_get_u8(p + 4);
    m->base = lum_get_u8(p + 5);
    m->count = lum_get_u16(p + 6);
}

static inline void lum_stage_sparse_request_write(const struct lum_stage_sparse_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->bank_generation);
    lum_put_u8(p + 4, m->bank);
    lum_put_u8(p + 5, m->base);
    lum_put_u16(p + 6, m->count);
}

/* StageReply, STAGE */
#define LUM_STAGE_REPLY_SIZE 8u
#define LUM_STAGE_REPLY_BANK_GENERATION_OFFSET 0u
#define LUM_STAGE_REPLY_STAGED_OFFSET 4u

struct lum_stage_reply {
    uint32_t bank_generation; /* echo */
    uint16_t staged; /* distinct channels staged so far in this bank generation [channels] */
};

static inline void lum_stage_reply_read(struct lum_stage_reply *m, const uint8_t *p)
{
    m->bank_generation = lum_get_u32(p + 0);
    m->staged = lum_get_u16(p + 4);
}

static inline void lum_stage_reply_write(const struct lum_stage_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->bank_generation);
    lum_put_u16(p + 4, m->staged);
    lum_put_u16(p + 6, 0u);
}

/* CommitRequest, COMMIT */
#define LUM_COMMIT_REQUEST_SIZE 20u
#define LUM_COMMIT_REQUEST_GENERATION_OFFSET 0u
#define LUM_COMMIT_REQUEST_BANK_GENERATION_OFFSET 4u
#define LUM_COMMIT_REQUEST_CRC32_OFFSET 8u
#define LUM_COMMIT_REQUEST_AT_TICK_OFFSET 12u
#define LUM_COMMIT_REQUEST_BANK_OFFSET 16u
#define LUM_COMMIT_REQUEST_WHEN_OFFSET 17u
#define LUM_COMMIT_REQUEST_COUNT_OFFSET 18u

struct lum_commit_request {
    uint32_t generation; /* number of the table that becomes active */
    uint32_t bank_generation; /* which content of the bank is meant */
    uint32_t crc32; /* CRC-32 of the n_dac codes, u16 little endian, channel order */
    uint32_t at_tick; /* only with when = 1, else 0 [ticks] */
    uint8_t bank; /* staging bank, 0..n_banks-1 */
    uint8_t when; /* 0 next tick edge, 1 at at_tick, 2 external trigger, 0,1,2 */
    uint16_t count; /* size of the table the host believes in [channels], n_dac */
};

static inline void lum_commit_request_read(struct lum_commit_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->bank_generation = lum_get_u32(p + 4);
    m->crc32 = lum_get_u32(p + 8);
    m->at_tick = lum_get_u32(p + 12);
    m->bank = lum_get_u8(p + 16);
    m->when = lum_get_u8(p + 17);
    m->count = lum_get_u16(p + 18);
}

static inline void lum_commit_request_write(const struct lum_commit_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->bank_generation);
    lum_put_u32(p + 8, m->crc32);
    lum_put_u32(p + 12, m->at_tick);
    lum_put_u8(p + 16, m->bank);
    lum_put_u8(p + 17, m->when);
    lum_put_u16(p + 18, m->count);
}

/* CommitReply, COMMIT */
#define LUM_COMMIT_REPLY_SIZE 16u
#define LUM_COMMIT_REPLY_GENERATION_OFFSET 0u
#define LUM_COMMIT_REPLY_TICK_OFFSET 4u
#define LUM_COMMIT_REPLY_CRC32_OFFSET 8u
#define LUM_COMMIT_REPLY_LATCHED_OFFSET 12u
#define LUM_COMMIT_REPLY_OUTPUTS_STATE_OFFSET 13u

struct lum_commit_reply {
    uint32_t generation; /* echo */
    uint32_t tick; /* edge of the latch, or planned edge (0 for a trigger) [ticks] */
    uint32_t crc32; /* CRC-32 of the table driven (latched) or armed (not latched) */
    uint8_t latched; /* 1 outputs have changed, 0 armed, 0,1 */
    uint8_t outputs_state; /* section 11.1, 0..4 */
};

static inline void lum_commit_reply_read(struct lum_commit_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->crc32 = lum_get_u32(p + 8);
    m->latched = lum_get_u8(p + 12);
    m->outputs_state = lum_get_u8(p + 13);
}

static inline void lum_commit_reply_write(const struct lum_commit_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->tick);
    lum_put_u32(p + 8, m->crc32);
    lum_put_u8(p + 12, m->latched);
    lum_put_u8(p + 13, m->outputs_state);
    lum_put_u16(p + 14, 0u);
}

/* SetRequest, SET */
#define LUM_SET_REQUEST_SIZE 8u
#define LUM_SET_REQUEST_GENERATION_OFFSET 0u
#define LUM_SET_REQUEST_COUNT_OFFSET 6u
#define LUM_SET_REQUEST_CODES_OFFSET 8u
#define LUM_SET_REQUEST_CODES_ELEMENT 2u

struct lum_set_request {
    uint32_t generation; /* newer than the active one */
    uint16_t count; /* codes that follow [codes], n_dac */
};

static inline void lum_set_request_read(struct lum_set_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->count = lum_get_u16(p + 6);
}

static inline void lum_set_request_write(const struct lum_set_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u16(p + 4, 0u);
    lum_put_u16(p + 6, m->count);
}

/* SetReply, SET */
#define LUM_SET_REPLY_SIZE 16u
#define LUM_SET_REPLY_GENERATION_OFFSET 0u
#define LUM_SET_REPLY_TICK_OFFSET 4u
#define LUM_SET_REPLY_CRC32_OFFSET 8u
#define LUM_SET_REPLY_LATCHED_OFFSET 12u
#define LUM_SET_REPLY_OUTPUTS_STATE_OFFSET 13u

struct lum_set_reply {
    uint32_t generation; /* echo */
    uint32_t tick; /* edge of the latch, or planned edge (0 for a trigger) [ticks] */
    uint32_t crc32; /* CRC-32 of the table driven (latched) or armed (not latched) */
    uint8_t latched; /* 1 outputs have changed, 0 armed, 0,1 */
    uint8_t outputs_state; /* section 11.1, 0..4 */
};

static inline void lum_set_reply_read(struct lum_set_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->crc32 = lum_get_u32(p + 8);
    m->latched = lum_get_u8(p + 12);
    m->outputs_state = lum_get_u8(p + 13);
}

static inline void lum_set_reply_write(const struct lum_set_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->tick);
    lum_put_u32(p + 8, m->crc32);
    lum_put_u8(p + 12, m->latched);
    lum_put_u8(p + 13, m->outputs_state);
    lum_put_u16(p + 14, 0u);
}

/* ReadbackRequest, READBACK */
#define LUM_READBACK_REQUEST_SIZE 6u
#define LUM_READBACK_REQUEST_BANK_OFFSET 0u
#define LUM_READBACK_REQUEST_RB_FLAGS_OFFSET 1u
#define LUM_READBACK_REQUEST_START_OFFSET 2u
#define LUM_READBACK_REQUEST_COUNT_OFFSET 4u

struct lum_readback_request {
    uint8_t bank; /* staging bank; 255 = the table driven now, 0..n_banks-1 or 255 */
    uint8_t rb_flags; /* b0 CODES: append codes; without it start and count are ignored [bits] */
    uint16_t start; /* first channel [channel], 0..n_dac-1 */
    uint16_t count; /* codes wanted [codes], 1..n_dac-start */
};

static inline void lum_readback_request_read(struct lum_readback_request *m, const uint8_t *p)
{
    m->bank = lum_get_u8(p + 0);
    m->rb_flags = lum_get_u8(p + 1);
    m->start = lum_get_u16(p + 2);
    m->count = lum_get_u16(p + 4);
}

static inline void lum_readback_request_write(const struct lum_readback_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->bank);
    lum_put_u8(p + 1, m->rb_flags);
    lum_put_u16(p + 2, m->start);
    lum_put_u16(p + 4, m->count);
}

/* ReadbackReply, READBACK */
#define LUM_READBACK_REPLY_SIZE 20u
#define LUM_READBACK_REPLY_GENERATION_OFFSET 0u
#define LUM_READBACK_REPLY_CRC32_OFFSET 4u
#define LUM_READBACK_REPLY_TICK_OFFSET 8u
#define LUM_READBACK_REPLY_OUTPUTS_STATE_OFFSET 12u
#define LUM_READBACK_REPLY_BANK_OFFSET 13u
#define LUM_READBACK_REPLY_STAGED_OFFSET 14u
#define LUM_READBACK_REPLY_START_OFFSET 16u
#define LUM_READBACK_REPLY_COUNT_OFFSET 18u
#define LUM_READBACK_REPLY_CODES_OFFSET 20u
#define LUM_READBACK_REPLY_CODES_ELEMENT 2u

struct lum_readback_reply {
    uint32_t generation; /* active generation, or the bank generation */
    uint32_t crc32; /* of the whole table; unstaged channels of a bank count as 0 */
    uint32_t tick; /* edge of the last latch; 0 for a bank [ticks] */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint8_t bank; /* echo */
    uint16_t staged; /* staged channels of the bank; n_dac for bank 255 [channels] */
    uint16_t start; /* echo [channel] */
    uint16_t count; /* codes that follow, 0 without CODES [codes] */
};

static inline void lum_readback_reply_read(struct lum_readback_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->crc32 = lum_get_u32(p + 4);
    m->tick = lum_get_u32(p + 8);
    m->outputs_state = lum_get_u8(p + 12);
    m->bank = lum_get_u8(p + 13);
    m->staged = lum_get_u16(p + 14);
    m->start = lum_get_u16(p + 16);
    m->count = lum_get_u16(p + 18);
}

static inline void lum_readback_reply_write(const struct lum_readback_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->crc32);
    lum_put_u32(p + 8, m->tick);
    lum_put_u8(p + 12, m->outputs_state);
    lum_put_u8(p + 13, m->bank);
    lum_put_u16(p + 14, m->staged);
    lum_put_u16(p + 16, m->start);
    lum_put_u16(p + 18, m->count);
}

/* ReadAdcRequest, READ_ADC */
#define LUM_READ_ADC_REQUEST_SIZE 8u
#define LUM_READ_ADC_REQUEST_START_OFFSET 0u
#define LUM_READ_ADC_REQUEST_COUNT_OFFSET 2u
#define LUM_READ_ADC_REQUEST_N_AVG_OFFSET 4u

struct lum_read_adc_request {
    uint16_t start; /* first monitor [channel], 0..n_adc-1 */
    uint16_t count; /* monitors wanted [channels], 1..n_adc-start */
    uint16_t n_avg; /* scans averaged, 1..4096 */
};

static inline void lum_read_adc_request_read(struct lum_read_adc_request *m, const uint8_t *p)
{
    m->start = lum_get_u16(p + 0);
    m->count = lum_get_u16(p + 2);
    m->n_avg = lum_get_u16(p + 4);
}

static inline void lum_read_adc_request_write(const struct lum_read_adc_request *m, uint8_t *p)
{
    lum_put_u16(p + 0, m->start);
    lum_put_u16(p + 2, m->count);
    lum_put_u16(p + 4, m->n_avg);
    lum_put_u16(p + 6, 0u);
}

/* ReadAdcReply, READ_ADC */
#define LUM_READ_ADC_REPLY_SIZE 12u
#define LUM_READ_ADC_REPLY_TICK_OFFSET 0u
#define LUM_READ_ADC_REPLY_GENERATION_OFFSET 4u
#define LUM_READ_ADC_REPLY_START_OFFSET 8u
#define LUM_READ_ADC_REPLY_COUNT_OFFSET 10u
#define LUM_READ_ADC_REPLY_ADC_OFFSET 12u
#define LUM_READ_ADC_REPLY_ADC_ELEMENT 2u

struct lum_read_adc_reply {
    uint32_t tick; /* start of the first scan [ticks] */
    uint32_t generation; /* active generation at that time */
    uint16_t start; /* echo [channel] */
    uint16_t count; /* echo [channels] */
};

static inline void lum_read_adc_reply_read(struct lum_read_adc_reply *m, const uint8_t *p)
{
    m->tick = lum_get_u32(p + 0);
    m->generation = lum_get_u32(p + 4);
    m->start = lum_get_u16(p + 8);
    m->count = lum_get_u16(p + 10);
}

static inline void lum_read_adc_reply_write(const struct lum_read_adc_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->tick);
    lum_put_u32(p + 4, m->generation);
    lum_put_u16(p + 8, m->start);
    lum_put_u16(p + 10, m->count);
}

/* FaultListRequest, FAULT_LIST */
#define LUM_FAULT_LIST_REQUEST_SIZE 8u
#define LUM_FAULT_LIST_REQUEST_FIRST_ID_OFFSET 0u
#define LUM_FAULT_LIST_REQUEST_MAX_RECORDS_OFFSET 4u

struct lum_fault_list_request {
    uint32_t first_id; /* 0 = oldest kept */
    uint8_t max_records; /* 0 = as many as fit [records] */
};

static inline void lum_fault_list_request_read(struct lum_fault_list_request *m, const uint8_t *p)
{
    m->first_id = lum_get_u32(p + 0);
    m->max_records = lum_get_u8(p + 4);
}

static inline void lum_fault_list_request_write(const struct lum_fault_list_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->first_id);
    lum_put_u8(p + 4, m->max_records);
    lum_put_u8(p + 5, 0u);
    lum_put_u16(p + 6, 0u);
}

/* FaultListReply, FAULT_LIST */
#define LUM_FAULT_LIST_REPLY_SIZE 12u
#define LUM_FAULT_LIST_REPLY_LATCHED_OFFSET 0u
#define LUM_FAULT_LIST_REPLY_NEWEST_ID_OFFSET 4u
#define LUM_FAULT_LIST_REPLY_COUNT_OFFSET 8u
#define LUM_FAULT_LIST_REPLY_OUTPUTS_STATE_OFFSET 9u
#define LUM_FAULT_LIST_REPLY_RECORD_SIZE_OFFSET 10u
#define LUM_FAULT_LIST_REPLY_RECORDS_OFFSET 12u
#define LUM_FAULT_LIST_REPLY_RECORDS_ELEMENT 20u

struct lum_fault_list_reply {
    uint32_t latched; /* latched sources [bits] */
    uint32_t newest_id; /* 0 = no fault since power-up */
    uint8_t count; /* records that follow [records] */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint16_t record_size; /* stride of the records, allows growth [B], 20.. */
};

static inline void lum_fault_list_reply_read(struct lum_fault_list_reply *m, const uint8_t *p)
{
    m->latched = lum_get_u32(p + 0);
    m->newest_id = lum_get_u32(p + 4);
    m->count = lum_get_u8(p + 8);
    m->outputs_state = lum_get_u8(p + 9);
    m->record_size = lum_get_u16(p + 10);
}

static inline void lum_fault_list_reply_write(const struct lum_fault_list_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->latched);
    lum_put_u32(p + 4, m->newest_id);
    lum_put_u8(p + 8, m->count);
    lum_put_u8(p + 9, m->outputs_state);
    lum_put_u16(p + 10, m->record_size);
}

/* FaultClearRequest, FAULT_CLEAR */
#define LUM_FAULT_CLEAR_REQUEST_SIZE 4u
#define LUM_FAULT_CLEAR_REQUEST_FAULT_ID_OFFSET 0u

struct lum_fault_clear_request {
    uint32_t fault_id; /* the fault to clear */
};

static inline void lum_fault_clear_request_read(struct lum_fault_clear_request *m, const uint8_t *p)
{
    m->fault_id = lum_get_u32(p + 0);
}

static inline void lum_fault_clear_request_write(const struct lum_fault_clear_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->fault_id);
}

/* FaultClearReply, FAULT_CLEAR */
#define LUM_FAULT_CLEAR_REPLY_SIZE 12u
#define LUM_FAULT_CLEAR_REPLY_LATCHED_OFFSET 0u
#define LUM_FAULT_CLEAR_REPLY_NEWEST_ID_OFFSET 4u
#define LUM_FAULT_CLEAR_REPLY_OUTPUTS_STATE_OFFSET 8u

struct lum_fault_clear_reply {
    uint32_t latched; /* what is still latched [bits] */
    uint32_t newest_id; /* 0 = no fault since power-up */
    uint8_t outputs_state; /* section 11.1, 0..4 */
};

static inline void lum_fault_clear_reply_read(struct lum_fault_clear_reply *m, const uint8_t *p)
{
    m->latched = lum_get_u32(p + 0);
    m->newest_id = lum_get_u32(p + 4);
    m->outputs_state = lum_get_u8(p + 8);
}

static inline void lum_fault_clear_reply_write(const struct lum_fault_clear_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->latched);
    lum_put_u32(p + 4, m->newest_id);
    lum_put_u8(p + 8, m->outputs_state);
    lum_put_u8(p + 9, 0u);
    lum_put_u16(p + 10, 0u);
}

/* FaultRecord, FAULT */
#define LUM_FAULT_RECORD_SIZE 20u
#define LUM_FAULT_RECORD_FAULT_ID_OFFSET 0u
#define LUM_FAULT_RECORD_TICK_OFFSET 4u
#define LUM_FAULT_RECORD_SOURCE_OFFSET 8u
#define LUM_FAULT_RECORD_FAULT_STATE_OFFSET 9u
#define LUM_FAULT_RECORD_CHANNEL_OFFSET 10u
#define LUM_FAULT_RECORD_CHANNEL_NONE 65535u
#define LUM_FAULT_RECORD_VALUE_OFFSET 12u
#define LUM_FAULT_RECORD_LIMIT_OFFSET 16u

struct lum_fault_record {
    uint32_t fault_id; /* counts up from 1 in one boot, 1.. */
    uint32_t tick; /* when it tripped [ticks] */
    uint8_t source; /* bit number of the fault source, 0..31 */
    uint8_t fault_state; /* 0 cleared, 1 latched, 2 latched and still present, 0,1,2 */
    uint16_t channel; /* channel concerned [channel] */
    int32_t value; /* measured [by source] */
    int32_t limit; /* threshold [by source] */
};

static inline void lum_fault_record_read(struct lum_fault_record *m, const uint8_t *p)
{
    m->fault_id = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->source = lum_get_u8(p + 8);
    m->fault_state = lum_get_u8(p + 9);
    m->channel = lum_get_u16(p + 10);
    m->value = lum_get_i32(p + 12);
    m->limit = lum_get_i32(p + 16);
}

static inline void lum_fault_record_write(const struct lum_fault_record *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->fault_id);
    lum_put_u32(p + 4, m->tick);
    lum_put_u8(p + 8, m->source);
    lum_put_u8(p + 9, m->fault_state);
    lum_put_u16(p + 10, m->channel);
    lum_put_i32(p + 12, m->value);
    lum_put_i32(p + 16, m->limit);
}

/* SubscribeRequest, SUBSCRIBE */
#define LUM_SUBSCRIBE_REQUEST_SIZE 16u
#define LUM_SUBSCRIBE_REQUEST_STREAM_OFFSET 0u
#define LUM_SUBSCRIBE_REQUEST_SUB_FLAGS_OFFSET 1u
#define LUM_SUBSCRIBE_REQUEST_N_AVG_OFFSET 2u
#define LUM_SUBSCRIBE_REQUEST_PERIOD_TICKS_OFFSET 4u
#define LUM_SUBSCRIBE_REQUEST_CREDIT_LIMIT_OFFSET 8u
#define LUM_SUBSCRIBE_REQUEST_MASK_LEN_OFFSET 12u
#define LUM_SUBSCRIBE_REQUEST_MASK_OFFSET 16u
#define LUM_SUBSCRIBE_REQUEST_MASK_ELEMENT 1u

struct lum_subscribe_request {
    uint8_t stream; /* telemetry stream, 2..1+n_streams */
    uint8_t sub_flags; /* b0 RENEW: only credit_limit is used, everything else stays [bits] */
    uint16_t n_avg; /* scans averaged per record, 1..4096 */
    uint32_t period_ticks; /* 0 stops the stream [ticks] */
    uint32_t credit_limit; /* events with number < credit_limit may be sent (absolute) [events] */
    uint16_t mask_len; /* 0 = all channels [B], 0..8192 */
};

static inline void lum_subscribe_request_read(struct lum_subscribe_request *m, const uint8_t *p)
{
    m->stream = lum_get_u8(p + 0);
    m->sub_flags = lum_get_u8(p + 1);
    m->n_avg = lum_get_u16(p + 2);
    m->period_ticks = lum_get_u32(p + 4);
    m->credit_limit = lum_get_u32(p + 8);
    m->mask_len = lum_get_u16(p + 12);
}

static inline void lum_subscribe_request_write(const struct lum_subscribe_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->stream);
    lum_put_u8(p + 1, m->sub_flags);
    lum_put_u16(p + 2, m->n_avg);
    lum_put_u32(p + 4, m->period_ticks);
    lum_put_u32(p + 8, m->credit_limit);
    lum_put_u16(p + 12, m->mask_len);
    lum_put_u16(p + 14, 0u);
}

/* SubscribeReply, SUBSCRIBE */
#define LUM_SUBSCRIBE_REPLY_SIZE 12u
#define LUM_SUBSCRIBE_REPLY_STREAM_OFFSET 0u
#define LUM_SUBSCRIBE_REPLY_COUNT_OFFSET 2u
#define LUM_SUBSCRIBE_REPLY_NEXT_EVENT_OFFSET 4u
#define LUM_SUBSCRIBE_REPLY_DROPPED_OFFSET 8u

struct lum_subscribe_reply {
    uint8_t stream; /* echo */
    uint16_t count; /* channels selected [channels] */
    uint32_t next_event; /* number of the next event */
    uint32_t dropped; /* dropped by the board since the subscription [events] */
};

static inline void lum_subscribe_reply_read(struct lum_subscribe_reply *m, const uint8_t *p)
{
    m->stream = lum_get_u8(p + 0);
    m->count = lum_get_u16(p + 2);
    m->next_event = lum_get_u32(p + 4);
    m->dropped = lum_get_u32(p + 8);
}

static inline void lum_subscribe_reply_write(const struct lum_subscribe_reply *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->stream);
    lum_put_u8(p + 1, 0u);
    lum_put_u16(p + 2, m->count);
    lum_put_u32(p + 4, m->next_event);
    lum_put_u32(p + 8, m->dropped);
}

/* TelemetryEvent, TELEMETRY */
#define LUM_TELEMETRY_EVENT_SIZE 16u
#define LUM_TELEMETRY_EVENT_TICK_OFFSET 0u
#define LUM_TELEMETRY_EVENT_DROPPED_OFFSET 4u
#define LUM_TELEMETRY_EVENT_GENERATION_OFFSET 8u
#define LUM_TELEMETRY_EVENT_CHIP_TEMP_OFFSET 12u
#define LUM_TELEMETRY_EVENT_CHIP_TEMP_NONE (-32768)
#define LUM_TELEMETRY_EVENT_COUNT_OFFSET 14u
#define LUM_TELEMETRY_EVENT_ADC_OFFSET 16u
#define LUM_TELEMETRY_EVENT_ADC_ELEMENT 2u

struct lum_telemetry_event {
    uint32_t tick; /* start of the scan [ticks] */
    uint32_t dropped; /* records discarded so far for lack of credit or queue space [events] */
    uint32_t generation; /* active generation when sampled */
    int16_t chip_temp; /* chip temperature [0.01 deg C] */
    uint16_t count; /* codes that follow [channels] */
};

static inline void lum_telemetry_event_read(struct lum_telemetry_event *m, const uint8_t *p)
{
    m->tick = lum_get_u32(p + 0);
    m->dropped = lum_get_u32(p + 4);
    m->generation = lum_get_u32(p + 8);
    m->chip_temp = lum_get_i16(p + 12);
    m->count = lum_get_u16(p + 14);
}

static inline void lum_telemetry_event_write(const struct lum_telemetry_event *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->tick);
    lum_put_u32(p + 4, m->dropped);
    lum_put_u32(p + 8, m->generation);
    lum_put_i16(p + 12, m->chip_temp);
    lum_put_u16(p + 14, m->count);
}

/* WatchRequest, WATCH */
#define LUM_WATCH_REQUEST_SIZE 8u
#define LUM_WATCH_REQUEST_WATCH_FLAGS_OFFSET 0u
#define LUM_WATCH_REQUEST_PERIOD_TICKS_OFFSET 2u
#define LUM_WATCH_REQUEST_COUNT_OFFSET 4u
#define LUM_WATCH_REQUEST_MONITORS_OFFSET 8u
#define LUM_WATCH_REQUEST_MONITORS_ELEMENT 8u

struct lum_watch_request {
    uint8_t watch_flags; /* b0 CLEAR: forget all monitors first [bits] */
    uint16_t period_ticks; /* time between two scans; 0 = as before [ticks] */
    uint16_t count; /* records that follow [monitors], 0..65535 */
};

static inline void lum_watch_request_read(struct lum_watch_request *m, const uint8_t *p)
{
    m->watch_flags = lum_get_u8(p + 0);
    m->period_ticks = lum_get_u16(p + 2);
    m->count = lum_get_u16(p + 4);
}

static inline void lum_watch_request_write(const struct lum_watch_request *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->watch_flags);
    lum_put_u8(p + 1, 0u);
    lum_put_u16(p + 2, m->period_ticks);
    lum_put_u16(p + 4, m->count);
    lum_put_u16(p + 6, 0u);
}

/* WatchReply, WATCH */
#define LUM_WATCH_REPLY_SIZE 8u
#define LUM_WATCH_REPLY_NEXT_EVENT_OFFSET 0u
#define LUM_WATCH_REPLY_N_WATCHED_OFFSET 4u
#define LUM_WATCH_REPLY_N_DARK_OFFSET 6u

struct lum_watch_reply {
    uint32_t next_event; /* number of the next LIGHT event */
    uint16_t n_watched; /* monitors watched [channels] */
    uint16_t n_dark; /* of them dark at present [channels] */
};

static inline void lum_watch_reply_read(struct lum_watch_reply *m, const uint8_t *p)
{
    m->next_event = lum_get_u32(p + 0);
    m->n_watched = lum_get_u16(p + 4);
    m->n_dark = lum_get_u16(p + 6);
}

static inline void lum_watch_reply_write(const struct lum_watch_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->next_event);
    lum_put_u16(p + 4, m->n_watched);
    lum_put_u16(p + 6, m->n_dark);
}

/* LightEvent, LIGHT */
#define LUM_LIGHT_EVENT_SIZE 16u
#define LUM_LIGHT_EVENT_TICK_OFFSET 0u
#define LUM_LIGHT_EVENT_SINCE_OFFSET 4u
#define LUM_LIGHT_EVENT_GENERATION_OFFSET 8u
#define LUM_LIGHT_EVENT_MASK_LEN_OFFSET 12u
#define LUM_LIGHT_EVENT_DARK_OFFSET 16u
#define LUM_LIGHT_EVENT_DARK_ELEMENT 1u

struct lum_light_event {
    uint32_t tick; /* scan after which the state was this one [ticks] */
    uint32_t since; /* first of the scans that showed the change; tick, if nothing changed [ticks] */
    uint32_t generation; /* active generation at that scan */
    uint16_t mask_len; /* bytes of the mask: (n_adc + 7) / 8 [B] */
};

static inline void lum_light_event_read(struct lum_light_event *m, const uint8_t *p)
{
    m->tick = lum_get_u32(p + 0);
    m->since = lum_get_u32(p + 4);
    m->generation = lum_get_u32(p + 8);
    m->mask_len = lum_get_u16(p + 12);
}

static inline void lum_light_event_write(const struct lum_light_event *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->tick);
    lum_put_u32(p + 4, m->since);
    lum_put_u32(p + 8, m->generation);
    lum_put_u16(p + 12, m->mask_len);
    lum_put_u16(p + 14, 0u);
}

/* SweepImageHeader */
#define LUM_SWEEP_IMAGE_HEADER_SIZE 20u
#define LUM_SWEEP_IMAGE_HEADER_VERSION_OFFSET 0u
#define LUM_SWEEP_IMAGE_HEADER_IMG_FLAGS_OFFSET 1u
#define LUM_SWEEP_IMAGE_HEADER_N_AVG_OFFSET 2u
#define LUM_SWEEP_IMAGE_HEADER_N_POINTS_OFFSET 4u
#define LUM_SWEEP_IMAGE_HEADER_SETTLE_US_OFFSET 8u
#define LUM_SWEEP_IMAGE_HEADER_DWELL_US_OFFSET 12u
#define LUM_SWEEP_IMAGE_HEADER_END_ACTION_OFFSET 16u
#define LUM_SWEEP_IMAGE_HEADER_TRIGGER_OFFSET 17u
#define LUM_SWEEP_IMAGE_HEADER_MASK_LEN_OFFSET 18u
#define LUM_SWEEP_IMAGE_HEADER_MASK_OFFSET 20u
#define LUM_SWEEP_IMAGE_HEADER_MASK_ELEMENT 1u

struct lum_sweep_image_header {
    uint8_t version; /* image version, 1 */
    uint8_t img_flags; /* b0 START_TABLE [bits] */
    uint16_t n_avg; /* scans averaged per point, 1..4096 */
    uint32_t n_points; /* point records, 1.. */
    uint32_t settle_us; /* default wait between the latch of a point and its first scan [us] */
    uint32_t dwell_us; /* default least time from this latch to the next one [us] */
    uint8_t end_action; /* 0 drive the base table again at the end, 1 keep the last point, 0,1 */
    uint8_t trigger; /* 0 free running, 1 each point waits for the external trigger, 0,1 */
    uint16_t mask_len; /* 0 = all monitor channels [B], even */
};

static inline void lum_sweep_image_header_read(struct lum_sweep_image_header *m, const uint8_t *p)
{
    m->version = lum_get_u8(p + 0);
    m->img_flags = lum_get_u8(p + 1);
    m->n_avg = lum_get_u16(p + 2);
    m->n_points = lum_get_u32(p + 4);
    m->settle_us = lum_get_u32(p + 8);
    m->dwell_us = lum_get_u32(p + 12);
    m->end_action = lum_get_u8(p + 16);
    m->trigger = lum_get_u8(p + 17);
    m->mask_len = lum_get_u16(p + 18);
}

static inline void lum_sweep_image_header_write(const struct lum_sweep_image_header *m, uint8_t *p)
{
    lum_put_u8(p + 0, m->version);
    lum_put_u8(p + 1, m->img_flags);
    lum_put_u16(p + 2, m->n_avg);
    lum_put_u32(p + 4, m->n_points);
    lum_put_u32(p + 8, m->settle_us);
    lum_put_u32(p + 12, m->dwell_us);
    lum_put_u8(p + 16, m->end_action);
    lum_put_u8(p + 17, m->trigger);
    lum_put_u16(p + 18, m->mask_len);
}

/* SweepLoadRequest, SWEEP_LOAD */
#define LUM_SWEEP_LOAD_REQUEST_SIZE 20u
#define LUM_SWEEP_LOAD_REQUEST_SWEEP_ID_OFFSET 0u
#define LUM_SWEEP_LOAD_REQUEST_TOTAL_OFFSET 4u
#define LUM_SWEEP_LOAD_REQUEST_OFFSET_OFFSET 8u
#define LUM_SWEEP_LOAD_REQUEST_IMAGE_CRC32_OFFSET 12u
#define LUM_SWEEP_LOAD_REQUEST_LEN_OFFSET 16u
#define LUM_SWEEP_LOAD_REQUEST_DATA_OFFSET 20u
#define LUM_SWEEP_LOAD_REQUEST_DATA_ELEMENT 1u

struct lum_sweep_load_request {
    uint32_t sweep_id; /* identifies the image, 1.. */
    uint32_t total; /* length of the whole image [B], 1..sweep_mem */
    uint32_t offset; /* position of this piece [B], 0..total-1 */
    uint32_t image_crc32; /* CRC-32 of the whole image */
    uint16_t len; /* bytes that follow [B], 1..total-offset */
};

static inline void lum_sweep_load_request_read(struct lum_sweep_load_request *m, const uint8_t *p)
{
    m->sweep_id = lum_get_u32(p + 0);
    m->total = lum_get_u32(p + 4);
    m->offset = lum_get_u32(p + 8);
    m->image_crc32 = lum_get_u32(p + 12);
    m->len = lum_get_u16(p + 16);
}

static inline void lum_sweep_load_request_write(const struct lum_sweep_load_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->sweep_id);
    lum_put_u32(p + 4, m->total);
    lum_put_u32(p + 8, m->offset);
    lum_put_u32(p + 12, m->image_crc32);
    lum_put_u16(p + 16, m->len);
    lum_put_u16(p + 18, 0u);
}

/* SweepLoadReply, SWEEP_LOAD */
#define LUM_SWEEP_LOAD_REPLY_SIZE 8u
#define LUM_SWEEP_LOAD_REPLY_SWEEP_ID_OFFSET 0u
#define LUM_SWEEP_LOAD_REPLY_RECEIVED_OFFSET 4u

struct lum_sweep_load_reply {
    uint32_t sweep_id; /* echo */
    uint32_t received; /* contiguous bytes from 0 held now [B] */
};

static inline void lum_sweep_load_reply_read(struct lum_sweep_load_reply *m, const uint8_t *p)
{
    m->sweep_id = lum_get_u32(p + 0);
    m->received = lum_get_u32(p + 4);
}

static inline void lum_sweep_load_reply_write(const struct lum_sweep_load_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->sweep_id);
    lum_put_u32(p + 4, m->received);
}

/* SweepStartRequest, SWEEP_START */
#define LUM_SWEEP_START_REQUEST_SIZE 20u
#define LUM_SWEEP_START_REQUEST_GENERATION_OFFSET 0u
#define LUM_SWEEP_START_REQUEST_SWEEP_ID_OFFSET 4u
#define LUM_SWEEP_START_REQUEST_BASE_CRC32_OFFSET 8u
#define LUM_SWEEP_START_REQUEST_CREDIT_LIMIT_OFFSET 12u
#define LUM_SWEEP_START_REQUEST_REPEAT_OFFSET 16u
#define LUM_SWEEP_START_REQUEST_RUN_FLAGS_OFFSET 18u

struct lum_sweep_start_request {
    uint32_t generation; /* newer than the active one; names this run, becomes active at once */
    uint32_t sweep_id; /* image to run */
    uint32_t base_crc32; /* CRC-32 of the table the host believes driven */
    uint32_t credit_limit; /* records with index < credit_limit may be pushed [records] */
    uint16_t repeat; /* passes over the image; n_points x repeat < 2^31, 1..65535 */
    uint16_t run_flags; /* b0 OVERWRITE the oldest record of a full ring, b1 NO_BASE_CHECK [bits] */
};

static inline void lum_sweep_start_request_read(struct lum_sweep_start_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->sweep_id = lum_get_u32(p + 4);
    m->base_crc32 = lum_get_u32(p + 8);
    m->credit_limit = lum_get_u32(p + 12);
    m->repeat = lum_get_u16(p + 16);
    m->run_flags = lum_get_u16(p + 18);
}

static inline void lum_sweep_start_request_write(const struct lum_sweep_start_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->sweep_id);
    lum_put_u32(p + 8, m->base_crc32);
    lum_put_u32(p + 12, m->credit_limit);
    lum_put_u16(p + 16, m->repeat);
    lum_put_u16(p + 18, m->run_flags);
}

/* SweepStartReply, SWEEP_START */
#define LUM_SWEEP_START_REPLY_SIZE 16u
#define LUM_SWEEP_START_REPLY_GENERATION_OFFSET 0u
#define LUM_SWEEP_START_REPLY_TICK_OFFSET 4u
#define LUM_SWEEP_START_REPLY_RECORDS_OFFSET 8u
#define LUM_SWEEP_START_REPLY_N_ADC_OFFSET 12u
#define LUM_SWEEP_START_REPLY_OUTPUTS_STATE_OFFSET 14u

struct lum_sweep_start_reply {
    uint32_t generation; /* echo */
    uint32_t tick; /* edge of the first point [ticks] */
    uint32_t records; /* n_points x repeat */
    uint16_t n_adc; /* values per record [values] */
    uint8_t outputs_state; /* SWEEP while running, 0..4 */
};

static inline void lum_sweep_start_reply_read(struct lum_sweep_start_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->tick = lum_get_u32(p + 4);
    m->records = lum_get_u32(p + 8);
    m->n_adc = lum_get_u16(p + 12);
    m->outputs_state = lum_get_u8(p + 14);
}

static inline void lum_sweep_start_reply_write(const struct lum_sweep_start_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->tick);
    lum_put_u32(p + 8, m->records);
    lum_put_u16(p + 12, m->n_adc);
    lum_put_u8(p + 14, m->outputs_state);
    lum_put_u8(p + 15, 0u);
}

/* SweepDataEvent, SWEEP_DATA */
#define LUM_SWEEP_DATA_EVENT_SIZE 16u
#define LUM_SWEEP_DATA_EVENT_GENERATION_OFFSET 0u
#define LUM_SWEEP_DATA_EVENT_FIRST_OFFSET 4u
#define LUM_SWEEP_DATA_EVENT_TICK_OFFSET 8u
#define LUM_SWEEP_DATA_EVENT_COUNT_OFFSET 12u
#define LUM_SWEEP_DATA_EVENT_N_ADC_OFFSET 14u
#define LUM_SWEEP_DATA_EVENT_VALUES_OFFSET 16u
#define LUM_SWEEP_DATA_EVENT_VALUES_ELEMENT 2u

struct lum_sweep_data_event {
    uint32_t generation; /* run */
    uint32_t first; /* index of the first record [record] */
    uint32_t tick; /* first scan of the first record [ticks] */
    uint16_t count; /* records that follow [records], 1.. */
    uint16_t n_adc; /* values per record [values] */
};

static inline void lum_sweep_data_event_read(struct lum_sweep_data_event *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->first = lum_get_u32(p + 4);
    m->tick = lum_get_u32(p + 8);
    m->count = lum_get_u16(p + 12);
    m->n_adc = lum_get_u16(p + 14);
}

static inline void lum_sweep_data_event_write(const struct lum_sweep_data_event *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->first);
    lum_put_u32(p + 8, m->tick);
    lum_put_u16(p + 12, m->count);
    lum_put_u16(p + 14, m->n_adc);
}

/* SweepReadRequest, SWEEP_READ */
#define LUM_SWEEP_READ_REQUEST_SIZE 12u
#define LUM_SWEEP_READ_REQUEST_GENERATION_OFFSET 0u
#define LUM_SWEEP_READ_REQUEST_FIRST_OFFSET 4u
#define LUM_SWEEP_READ_REQUEST_COUNT_OFFSET 8u

struct lum_sweep_read_request {
    uint32_t generation; /* run */
    uint32_t first; /* index of the first record wanted [record] */
    uint16_t count; /* records wanted; 0 = status only [records] */
};

static inline void lum_sweep_read_request_read(struct lum_sweep_read_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->first = lum_get_u32(p + 4);
    m->count = lum_get_u16(p + 8);
}

static inline void lum_sweep_read_request_write(const struct lum_sweep_read_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->first);
    lum_put_u16(p + 8, m->count);
    lum_put_u16(p + 10, 0u);
}

/* SweepReadReply, SWEEP_READ */
#define LUM_SWEEP_READ_REPLY_SIZE 28u
#define LUM_SWEEP_READ_REPLY_GENERATION_OFFSET 0u
#define LUM_SWEEP_READ_REPLY_FIRST_OFFSET 4u
#define LUM_SWEEP_READ_REPLY_PRODUCED_OFFSET 8u
#define LUM_SWEEP_READ_REPLY_OLDEST_OFFSET 12u
#define LUM_SWEEP_READ_REPLY_DROPPED_OFFSET 16u
#define LUM_SWEEP_READ_REPLY_COUNT_OFFSET 20u
#define LUM_SWEEP_READ_REPLY_N_ADC_OFFSET 22u
#define LUM_SWEEP_READ_REPLY_RUN_STATE_OFFSET 24u
#define LUM_SWEEP_READ_REPLY_REASON_OFFSET 25u
#define LUM_SWEEP_READ_REPLY_REASON_NONE 255u
#define LUM_SWEEP_READ_REPLY_VALUES_OFFSET 28u
#define LUM_SWEEP_READ_REPLY_VALUES_ELEMENT 2u

struct lum_sweep_read_reply {
    uint32_t generation; /* echo */
    uint32_t first; /* echo [record] */
    uint32_t produced; /* records produced so far [records] */
    uint32_t oldest; /* oldest record still held [record] */
    uint32_t dropped; /* overwritten so far [records] */
    uint16_t count; /* records that follow: min(asked, produced - first) [records] */
    uint16_t n_adc; /* values per record [values] */
    uint8_t run_state; /* 0 none, 1 running, 2 paused (ring full), 3 ended, 0..3 */
    uint8_t reason; /* why the run ended; 255 while not ended, 0..5 */
};

static inline void lum_sweep_read_reply_read(struct lum_sweep_read_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->first = lum_get_u32(p + 4);
    m->produced = lum_get_u32(p + 8);
    m->oldest = lum_get_u32(p + 12);
    m->dropped = lum_get_u32(p + 16);
    m->count = lum_get_u16(p + 20);
    m->n_adc = lum_get_u16(p + 22);
    m->run_state = lum_get_u8(p + 24);
    m->reason = lum_get_u8(p + 25);
}

static inline void lum_sweep_read_reply_write(const struct lum_sweep_read_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->first);
    lum_put_u32(p + 8, m->produced);
    lum_put_u32(p + 12, m->oldest);
    lum_put_u32(p + 16, m->dropped);
    lum_put_u16(p + 20, m->count);
    lum_put_u16(p + 22, m->n_adc);
    lum_put_u8(p + 24, m->run_state);
    lum_put_u8(p + 25, m->reason);
    lum_put_u16(p + 26, 0u);
}

/* SweepAckRequest, SWEEP_ACK */
#define LUM_SWEEP_ACK_REQUEST_SIZE 12u
#define LUM_SWEEP_ACK_REQUEST_GENERATION_OFFSET 0u
#define LUM_SWEEP_ACK_REQUEST_UP_TO_OFFSET 4u
#define LUM_SWEEP_ACK_REQUEST_CREDIT_LIMIT_OFFSET 8u

struct lum_sweep_ack_request {
    uint32_t generation; /* run */
    uint32_t up_to; /* records with index < up_to are released; never moves back [record] */
    uint32_t credit_limit; /* new push limit; never moves back [records] */
};

static inline void lum_sweep_ack_request_read(struct lum_sweep_ack_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->up_to = lum_get_u32(p + 4);
    m->credit_limit = lum_get_u32(p + 8);
}

static inline void lum_sweep_ack_request_write(const struct lum_sweep_ack_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->up_to);
    lum_put_u32(p + 8, m->credit_limit);
}

/* SweepAckReply, SWEEP_ACK */
#define LUM_SWEEP_ACK_REPLY_SIZE 12u
#define LUM_SWEEP_ACK_REPLY_GENERATION_OFFSET 0u
#define LUM_SWEEP_ACK_REPLY_PRODUCED_OFFSET 4u
#define LUM_SWEEP_ACK_REPLY_OLDEST_OFFSET 8u

struct lum_sweep_ack_reply {
    uint32_t generation; /* echo */
    uint32_t produced; /* records produced so far [records] */
    uint32_t oldest; /* oldest record still held [record] */
};

static inline void lum_sweep_ack_reply_read(struct lum_sweep_ack_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->produced = lum_get_u32(p + 4);
    m->oldest = lum_get_u32(p + 8);
}

static inline void lum_sweep_ack_reply_write(const struct lum_sweep_ack_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->produced);
    lum_put_u32(p + 8, m->oldest);
}

/* SweepAbortRequest, SWEEP_ABORT */
#define LUM_SWEEP_ABORT_REQUEST_SIZE 4u
#define LUM_SWEEP_ABORT_REQUEST_GENERATION_OFFSET 0u

struct lum_sweep_abort_request {
    uint32_t generation; /* run */
};

static inline void lum_sweep_abort_request_read(struct lum_sweep_abort_request *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
}

static inline void lum_sweep_abort_request_write(const struct lum_sweep_abort_request *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
}

/* SweepAbortReply, SWEEP_ABORT */
#define LUM_SWEEP_ABORT_REPLY_SIZE 16u
#define LUM_SWEEP_ABORT_REPLY_GENERATION_OFFSET 0u
#define LUM_SWEEP_ABORT_REPLY_RECORDS_OFFSET 4u
#define LUM_SWEEP_ABORT_REPLY_TICK_OFFSET 8u
#define LUM_SWEEP_ABORT_REPLY_OUTPUTS_STATE_OFFSET 12u
#define LUM_SWEEP_ABORT_REPLY_REASON_OFFSET 13u

struct lum_sweep_abort_reply {
    uint32_t generation; /* echo */
    uint32_t records; /* records produced */
    uint32_t tick; /* edge at which the base table was driven again [ticks] */
    uint8_t outputs_state; /* section 11.1, 0..4 */
    uint8_t reason; /* why the run ended, 0..5 */
};

static inline void lum_sweep_abort_reply_read(struct lum_sweep_abort_reply *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->records = lum_get_u32(p + 4);
    m->tick = lum_get_u32(p + 8);
    m->outputs_state = lum_get_u8(p + 12);
    m->reason = lum_get_u8(p + 13);
}

static inline void lum_sweep_abort_reply_write(const struct lum_sweep_abort_reply *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->records);
    lum_put_u32(p + 8, m->tick);
    lum_put_u8(p + 12, m->outputs_state);
    lum_put_u8(p + 13, m->reason);
    lum_put_u16(p + 14, 0u);
}

/* SweepDoneEvent, SWEEP_DONE */
#define LUM_SWEEP_DONE_EVENT_SIZE 24u
#define LUM_SWEEP_DONE_EVENT_GENERATION_OFFSET 0u
#define LUM_SWEEP_DONE_EVENT_RECORDS_OFFSET 4u
#define LUM_SWEEP_DONE_EVENT_DROPPED_OFFSET 8u
#define LUM_SWEEP_DONE_EVENT_TICK_OFFSET 12u
#define LUM_SWEEP_DONE_EVENT_CRC32_OFFSET 16u
#define LUM_SWEEP_DONE_EVENT_LATE_OFFSET 20u
#define LUM_SWEEP_DONE_EVENT_REASON_OFFSET 22u
#define LUM_SWEEP_DONE_EVENT_OUTPUTS_STATE_OFFSET 23u

struct lum_sweep_done_event {
    uint32_t generation; /* run */
    uint32_t records; /* records produced */
    uint32_t dropped; /* overwritten [records] */
    uint32_t tick; /* edge of the final latch [ticks] */
    uint32_t crc32; /* table driven after the run */
    uint16_t late; /* points whose dwell_us was exceeded; saturates [points] */
    uint8_t reason; /* why the run ended, 0..5 */
    uint8_t outputs_state; /* section 11.1, 0..4 */
};

static inline void lum_sweep_done_event_read(struct lum_sweep_done_event *m, const uint8_t *p)
{
    m->generation = lum_get_u32(p + 0);
    m->records = lum_get_u32(p + 4);
    m->dropped = lum_get_u32(p + 8);
    m->tick = lum_get_u32(p + 12);
    m->crc32 = lum_get_u32(p + 16);
    m->late = lum_get_u16(p + 20);
    m->reason = lum_get_u8(p + 22);
    m->outputs_state = lum_get_u8(p + 23);
}

static inline void lum_sweep_done_event_write(const struct lum_sweep_done_event *m, uint8_t *p)
{
    lum_put_u32(p + 0, m->generation);
    lum_put_u32(p + 4, m->records);
    lum_put_u32(p + 8, m->dropped);
    lum_put_u32(p + 12, m->tick);
    lum_put_u32(p + 16, m->crc32);
    lum_put_u16(p + 20, m->late);
    lum_put_u8(p + 22, m->reason);
    lum_put_u8(p + 23, m->outputs_state);
}

#ifdef __cplusplus
}
#endif

#endif /* LUMION_PROTOCOL_H */

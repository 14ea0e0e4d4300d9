/* Fair packet scheduling from C. Generated from Rust: do not edit.
 *
 * Every call returns FL_OK or a negative code; fl_strerror() returns its sentence. A null or misaligned pointer,
 * a struct of a wrong size, a closed handle, a removed flow, a call from two threads at once or from a callback:
 * each has a code. No call unwinds into C, and none blocks except fl_client_open().
 *
 * The caller must ensure what the library cannot check: pointers that are neither null nor misaligned point to
 * the memory that the call requires, for as long as the call lasts, and a callback returns.
 *
 * A handle may be used from any thread, by one call at a time. Handles and flows are numbers with a generation,
 * so that a closed or removed one is never mistaken for another; {0} is none.
 *
 * In a struct with a first member `size`, set it to sizeof, and all members that you do not need to 0.
 */

#ifndef FAIRLANE_H
#define FAIRLANE_H

#include <stddef.h>
#include <stdint.h>

/**
 * A frame begins with an Ethernet header.
 */
#define FL_ETHERNET 0

/**
 * A frame begins with an IP header.
 */
#define FL_IP 1

/**
 * The result of a call, or of a packet.
 */
enum fl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Success.
   */
  FL_OK = 0,
  /**
   * A pointer is null, or not aligned for its type.
   */
  FL_ERR_POINTER = -1,
  /**
   * The size that a struct begins with is too small, or a member that this library does not know is not 0.
   */
  FL_ERR_SIZE = -2,
  /**
   * There is no such scheduler or client: it was closed, or never opened.
   */
  FL_ERR_HANDLE = -3,
  /**
   * Another call is using it: one of another thread, or the one that runs the callback.
   */
  FL_ERR_BUSY = -4,
  /**
   * There is no such flow or class: it was removed, or never added.
   */
  FL_ERR_FLOW = -5,
  /**
   * A weight is out of range: 1 to 1000000.
   */
  FL_ERR_WEIGHT = -6,
  /**
   * A length is out of range: 1 to 65535 bytes; a number of packets is more than memory can hold.
   */
  FL_ERR_LENGTH = -7,
  /**
   * No scheduling algorithm has this name.
   */
  FL_ERR_ALGORITHM = -8,
  /**
   * A text is not UTF-8.
   */
  FL_ERR_TEXT = -9,
  /**
   * The text of a site is invalid, or has no link of this name.
   */
  FL_ERR_SITE = -10,
  /**
   * The scheduler is of the other kind: only one of flows adds and removes flows, only one of a link has classes.
   */
  FL_ERR_KIND = -11,
  /**
   * The largest number of schedulers, clients or flows exists.
   */
  FL_ERR_MANY = -12,
  /**
   * A packet is queued that is longer than the new maximum.
   */
  FL_ERR_QUEUED = -13,
  /**
   * The packet is longer than its flow or class declared.
   */
  FL_ERR_TOO_LONG = -14,
  /**
   * The queue of the flow or class is full.
   */
  FL_ERR_QUEUE_FULL = -15,
  /**
   * All queues together are full.
   */
  FL_ERR_LINK_FULL = -16,
  /**
   * Queue management dropped the packet to signal congestion.
   */
  FL_ERR_CONGESTION = -17,
  /**
   * The class has child classes, and no queue of its own.
   */
  FL_ERR_NO_QUEUE = -18,
  /**
   * The packet's flow was removed, or its scheduler closed.
   */
  FL_ERR_FLUSHED = -19,
  /**
   * The packet was evicted for another: the link was full, and its class exceeded its room most.
   */
  FL_ERR_DISPLACED = -20,
  /**
   * No daemon listens at the socket, or it does not answer.
   */
  FL_ERR_UNREACHABLE = -21,
  /**
   * The daemon rejected the client.
   */
  FL_ERR_REFUSED = -22,
  /**
   * The daemon's answer is invalid.
   */
  FL_ERR_ANSWER = -23,
  /**
   * The client's mailbox is full.
   */
  FL_ERR_MAILBOX_FULL = -24,
  /**
   * The daemon has ended, or has disconnected the client.
   */
  FL_ERR_GONE = -25,
  /**
   * The library had an internal error; the scheduler or client can only be closed.
   */
  FL_ERR_PANIC = -26,
  /**
   * A frame begins with neither FL_ETHERNET nor FL_IP.
   */
  FL_ERR_LAYER = -27,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum fl_status fl_status;
#else
typedef int32_t fl_status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/**
 * A flow or a class of one scheduler. 0 is none; for counters, 0 is the sum of all.
 */
typedef uint64_t fl_flow;

/**
 * A packet to enqueue, or a dequeued one.
 */
typedef struct fl_packet {
  /**
   * The caller's pointer, never dereferenced.
   */
  void *data;
  /**
   * The flow or class of the packet.
   */
  fl_flow flow;
  /**
   * Identifies the flow within a class of flows; otherwise ignored, and 0 after a dequeue.
   */
  uint64_t digest;
  /**
   * Its length on the link, in bytes with all framing: 1 to 65535.
   */
  uint32_t length;
  /**
   * Its result, an fl_status. Set by the library.
   */
  int32_t status;
} fl_packet;

/**
 * Called for a packet that was accepted and will not be dequeued: it belongs to the caller again, and packet->status
 * has the reason. packet is valid until the callback returns. Calls with the same scheduler meanwhile return
 * FL_ERR_BUSY. It must return: no longjmp, no exception.
 */
typedef void (*fl_discard)(void *argument, const struct fl_packet *packet);

/**
 * Options of a scheduler of flows.
 */
typedef struct fl_scheduler_options {
  /**
   * sizeof(fl_scheduler_options)
   */
  size_t size;
  /**
   * Name of the algorithm, as on the command line: "qfq+", "drr", "wf2q+", ...; null: "qfq".
   */
  const char *algorithm;
  /**
   * Flows in an aggregate, for algorithms that have these ("qfq+"); 0: 8.
   */
  uint32_t aggregate;
  /**
   * Limit of queued packets in all flows; 0: 2^20.
   */
  uint32_t packets;
  /**
   * Limit of queued bytes in all flows; 0: 2^30.
   */
  uint64_t bytes;
  /**
   * Default limit of queued packets in one flow; 0: no limit.
   */
  uint32_t flow_packets;
  /**
   * Default limit of queued bytes in one flow; 0: no limit.
   */
  uint32_t flow_bytes;
  /**
   * Called for discarded packets; may be null.
   */
  fl_discard discard;
  /**
   * Argument of discard.
   */
  void *argument;
} fl_scheduler_options;

/**
 * A scheduler: queues of packets, and their order.
 */
typedef struct fl_scheduler {
  /**
   * Private to the library.
   */
  uint64_t id;
} fl_scheduler;

/**
 * Options of a scheduler of the classes of a link, from the text of a site file.
 */
typedef struct fl_link_options {
  /**
   * sizeof(fl_link_options)
   */
  size_t size;
  /**
   * The text: TOML, UTF-8, ended by a zero.
   */
  const char *text;
  /**
   * Name of the link; null: the first one.
   */
  const char *link;
  /**
   * Called for discarded packets; may be null.
   */
  fl_discard discard;
  /**
   * Argument of discard.
   */
  void *argument;
} fl_link_options;

/**
 * Options of a flow.
 */
typedef struct fl_flow_options {
  /**
   * sizeof(fl_flow_options)
   */
  size_t size;
  /**
   * Its share is its weight over the sum of all: 1 to 1000000.
   */
  uint32_t weight;
  /**
   * Its actual longest packet in bytes: shares are exact to within a few of these. Longer packets are rejected.
   */
  uint32_t max_length;
  /**
   * Limit of its queued packets; 0: the scheduler's default.
   */
  uint32_t packets;
  /**
   * Limit of its queued bytes; 0: the scheduler's default.
   */
  uint32_t bytes;
} fl_flow_options;

/**
 * Counters: accepted = sent + discarded + queued.
 */
typedef struct fl_stats {
  /**
   * sizeof(fl_stats)
   */
  size_t size;
  /**
   * Accepted.
   */
  uint64_t accepted_packets;
  /**
   * Accepted.
   */
  uint64_t accepted_bytes;
  /**
   * Dequeued.
   */
  uint64_t sent_packets;
  /**
   * Dequeued.
   */
  uint64_t sent_bytes;
  /**
   * Queued now.
   */
  uint64_t queued_packets;
  /**
   * Queued now.
   */
  uint64_t queued_bytes;
  /**
   * Rejected on arrival.
   */
  uint64_t dropped_packets;
  /**
   * Rejected on arrival.
   */
  uint64_t dropped_bytes;
  /**
   * Accepted and discarded later.
   */
  uint64_t discarded_packets;
  /**
   * Accepted and discarded later.
   */
  uint64_t discarded_bytes;
} fl_stats;

/**
 * A client that is attached to a daemon.
 */
typedef struct fl_client {
  /**
   * Private to the library.
   */
  uint64_t id;
} fl_client;

/**
 * The bytes of a packet, for a client.
 */
typedef struct fl_bytes {
  /**
   * The first byte.
   */
  const void *data;
  /**
   * Number of bytes.
   */
  size_t length;
} fl_bytes;

/**
 * The properties of a client, and the daemon's counters for it.
 */
typedef struct fl_client_info {
  /**
   * sizeof(fl_client_info)
   */
  size_t size;
  /**
   * The weight of its flow.
   */
  uint32_t weight;
  /**
   * The longest packet that it may push, in bytes.
   */
  uint32_t max_length;
  /**
   * Capacity of its mailbox in packets.
   */
  uint64_t capacity;
  /**
   * Packets that the daemon has taken.
   */
  uint64_t taken;
  /**
   * Packets that the daemon has taken and dropped.
   */
  uint64_t dropped;
  /**
   * 1 once the daemon has ended, or has disconnected the client; otherwise 0.
   */
  uint32_t gone;
  /**
   * Private to the library.
   */
  uint32_t reserved;
  /**
   * Name of the class that the daemon assigned, ended by a zero, truncated if too long.
   */
  char class_name[64];
} fl_client_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Returns the sentence of a code, in English, which is never freed. An unknown number has a sentence too.
 */
const char *fl_strerror(int32_t code);

/**
 * Opens a scheduler of flows, initially without flows.
 *
 * # Safety
 *
 * `options` and `scheduler` point to valid memory of their type; `discard` may be called with `argument` until the
 * scheduler is closed, from any thread that calls with it.
 */
fl_status fl_scheduler_open(const struct fl_scheduler_options *options,
                            struct fl_scheduler *scheduler);

/**
 * Opens a scheduler of the classes of a link. If the text is invalid, `why` receives a sentence with its line, of at
 * most `why_size` bytes with the zero, otherwise an empty one; it may be null. The caller must keep to the link's
 * rate.
 *
 * # Safety
 *
 * As for fl_scheduler_open; `why` points to `why_size` bytes.
 */
fl_status fl_link_open(const struct fl_link_options *options,
                       struct fl_scheduler *scheduler,
                       char *why,
                       size_t why_size);

/**
 * Closes a scheduler, after discarding its queued packets. Every other call rejects a closed one.
 */
fl_status fl_scheduler_close(struct fl_scheduler scheduler);

/**
 * Adds a flow, initially idle.
 *
 * # Safety
 *
 * `options` and `flow` point to valid memory of their type.
 */
fl_status fl_flow_add(struct fl_scheduler scheduler, const struct fl_flow_options *options, fl_flow *flow);

/**
 * Changes a flow's weight, maximum length and limits; queued packets stay.
 *
 * # Safety
 *
 * `options` points to valid memory of its type.
 */
fl_status fl_flow_change(struct fl_scheduler scheduler, fl_flow flow, const struct fl_flow_options *options);

/**
 * Removes a flow, and discards its queued packets.
 */
fl_status fl_flow_remove(struct fl_scheduler scheduler, fl_flow flow);

/**
 * Finds the class of a link by its name in the file.
 *
 * # Safety
 *
 * `name` and `found` point to valid memory of their type.
 */
fl_status fl_class_find(struct fl_scheduler scheduler, const char *name, fl_flow *found);

/**
 * Returns the class and the digest of a packet by the filters of its link, from the bytes of its frame, which begins
 * with the header that `layer` selects (FL_ETHERNET, FL_IP). A frame that matches no filter or is malformed is of the
 * default class.
 *
 * # Safety
 *
 * `frame` points to `length` bytes, `flow` and `digest` to numbers.
 */
fl_status fl_classify(struct fl_scheduler scheduler,
                      uint32_t layer,
                      const void *frame,
                      size_t length,
                      fl_flow *flow,
                      uint64_t *digest);

/**
 * Enqueues a burst, in order. Each packet's status has its result; accepted packets belong to the scheduler, rejected
 * ones to the caller. `accepted` receives the number of accepted ones, and may be null. Returns FL_OK if all were
 * accepted, otherwise the reason why the first of the others was rejected; statuses are set unless `accepted` is 0 and
 * the code is about the call itself. `now` is the caller's clock in nanoseconds, which only classes use.
 *
 * # Safety
 *
 * `packets` points to `count` packets, `accepted` to a number.
 */
fl_status fl_enqueue(struct fl_scheduler scheduler,
                     uint64_t now,
                     struct fl_packet *packets,
                     size_t count,
                     size_t *accepted);

/**
 * Dequeues at most `most` packets, which belong to the caller again; `count` receives their number. `again`, which may
 * be null, receives the time of the next call: 0 if there may be more at once, UINT64_MAX if no packet is queued,
 * otherwise the time until which ceilings hold all queued packets.
 *
 * # Safety
 *
 * `packets` points to room for `most` packets, `count` and `again` to numbers.
 */
fl_status fl_dequeue(struct fl_scheduler scheduler,
                     uint64_t now,
                     struct fl_packet *packets,
                     size_t most,
                     size_t *count,
                     uint64_t *again);

/**
 * Returns the counters of a flow or a class, or of all (0).
 *
 * # Safety
 *
 * `stats` points to valid memory of its type.
 */
fl_status fl_stats_get(struct fl_scheduler scheduler, fl_flow flow, struct fl_stats *stats);

/**
 * Attaches to the daemon that listens at a socket, as one client. Waits at most five seconds for its answer. If there
 * is none, or a rejection, `why` receives a sentence of at most `why_size` bytes with the zero, otherwise an empty
 * one; it may be null. Linux only, like all of fl_client.
 *
 * # Safety
 *
 * `socket` and `client` point to valid memory of their type, `why` to `why_size` bytes.
 */
fl_status fl_client_open(const char *socket,
                         struct fl_client *client,
                         char *why,
                         size_t why_size);

/**
 * Pushes packets into the client's mailbox, in order, until one is rejected; `pushed` receives their number, and may
 * be null. Never waits. Each is copied. Returns FL_OK if all were pushed, otherwise the reason for the next one:
 * FL_ERR_MAILBOX_FULL, FL_ERR_GONE, FL_ERR_LENGTH (it is empty), FL_ERR_TOO_LONG (for its class).
 *
 * # Safety
 *
 * `packets` points to `count` of them, each of these to its bytes; `pushed` to a number.
 */
fl_status fl_client_push(struct fl_client client,
                         const struct fl_bytes *packets,
                         size_t count,
                         size_t *pushed);

/**
 * Returns the properties of a client and the daemon's counters for it. Costs a system call.
 *
 * # Safety
 *
 * `info` points to valid memory of its type.
 */
fl_status fl_client_get(struct fl_client client, struct fl_client_info *info);

/**
 * Detaches from the daemon, which still sends the pushed packets.
 */
fl_status fl_client_close(struct fl_client client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FAIRLANE_H */

/* Fair packet scheduling from C. Generated from Rust: do not edit.
 *
 * Every call returns FL_OK or a negative code; fl_strerror() has its sentence. A null or misaligned pointer, a
 * struct of a wrong size, a handle or a flow that is gone, a call from two threads at once or from a callback:
 * each is a code. No call unwinds into C, and none waits but fl_client_open().
 *
 * What the library cannot see is the caller's: pointers that are neither null nor misaligned point to what the
 * call says, for as long as the call lasts, and a callback returns.
 *
 * A handle may be used from any thread, by one call at a time. Handles and flows are numbers with a generation,
 * so that one that is gone is never taken for another; {0} is none.
 *
 * Struct with a first member `size`: set it to sizeof, and all that you do not need to 0.
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
 * What a call returns, and what became of a packet.
 */
enum fl_status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /**
   * Done.
   */
  FL_OK = 0,
  /**
   * A pointer is null, or not aligned for what it should point to.
   */
  FL_ERR_POINTER = -1,
  /**
   * The size that a struct begins with is too small, or beyond what this library knows of it there is
   * something other than 0.
   */
  FL_ERR_SIZE = -2,
  /**
   * There is no such scheduler or client: it was closed, or never opened.
   */
  FL_ERR_HANDLE = -3,
  /**
   * Another call is using it: of another thread, or the one that called back.
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
   * The text of a site is not sound, or has no link of this name.
   */
  FL_ERR_SITE = -10,
  /**
   * The scheduler is of the other kind: flows come and go in one of flows, classes are those of a link.
   */
  FL_ERR_KIND = -11,
  /**
   * There are as many schedulers, clients or flows as can be numbered.
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
   * The class has classes below it, and no queue of its own.
   */
  FL_ERR_NO_QUEUE = -18,
  /**
   * The packet's flow was removed, or its scheduler closed.
   */
  FL_ERR_FLUSHED = -19,
  /**
   * The packet gave way to another: the link was full, and its class held most beyond its own room.
   */
  FL_ERR_DISPLACED = -20,
  /**
   * Nobody listens at the socket, or nobody answers.
   */
  FL_ERR_UNREACHABLE = -21,
  /**
   * The daemon refused the client.
   */
  FL_ERR_REFUSED = -22,
  /**
   * The daemon's answer cannot be used.
   */
  FL_ERR_ANSWER = -23,
  /**
   * The client's mailbox is full.
   */
  FL_ERR_MAILBOX_FULL = -24,
  /**
   * The daemon is gone, or has cut the client off.
   */
  FL_ERR_GONE = -25,
  /**
   * The library failed inside; the scheduler or client can only be closed.
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
 * A flow or a class of one scheduler. 0 is none; where counts are asked for, 0 is all together.
 */
typedef uint64_t fl_flow;

/**
 * A packet as it goes in and comes out.
 */
typedef struct fl_packet {
  /**
   * The caller's, and never looked into.
   */
  void *data;
  /**
   * Where it goes, or where it waited.
   */
  fl_flow flow;
  /**
   * What tells flows apart within a class of flows; elsewhere not looked at, and 0 when it comes out.
   */
  uint64_t digest;
  /**
   * What it takes on the link, in bytes with all framing: 1 to 65535.
   */
  uint32_t length;
  /**
   * What became of it: an fl_status. Set by the library.
   */
  int32_t status;
} fl_packet;

/**
 * Told of a packet that was accepted and will not come out: it is the caller's again, and packet->status says
 * why. packet is there until the callback returns. What is called with the same scheduler meanwhile returns
 * FL_ERR_BUSY. It must return: no longjmp, no exception.
 */
typedef void (*fl_discard)(void *argument, const struct fl_packet *packet);

/**
 * A scheduler of flows.
 */
typedef struct fl_scheduler_options {
  /**
   * sizeof(fl_scheduler_options)
   */
  size_t size;
  /**
   * Name of the algorithm, as the command line has it: "qfq+", "drr", "wf2q+", ...; null: "qfq".
   */
  const char *algorithm;
  /**
   * Flows in an aggregate, for algorithms that have these ("qfq+"); 0: 8.
   */
  uint32_t aggregate;
  /**
   * Packets that wait in all flows; 0: 2^20.
   */
  uint32_t packets;
  /**
   * Bytes that wait in all flows; 0: 2^30.
   */
  uint64_t bytes;
  /**
   * Packets that wait in one flow, unless it says otherwise; 0: no limit.
   */
  uint32_t flow_packets;
  /**
   * Bytes that wait in one flow, unless it says otherwise; 0: no limit.
   */
  uint32_t flow_bytes;
  /**
   * Told of packets that are discarded; may be null.
   */
  fl_discard discard;
  /**
   * Handed to discard.
   */
  void *argument;
} fl_scheduler_options;

/**
 * A scheduler: queues of packets, and who is next among them.
 */
typedef struct fl_scheduler {
  /**
   * The library's.
   */
  uint64_t id;
} fl_scheduler;

/**
 * A scheduler of the classes of a link, from the text of a site's file.
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
   * Told of packets that are discarded; may be null.
   */
  fl_discard discard;
  /**
   * Handed to discard.
   */
  void *argument;
} fl_link_options;

/**
 * A flow.
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
   * Its longest packet in bytes, as it is: shares are exact to within a few of these. Longer ones are rejected.
   */
  uint32_t max_length;
  /**
   * Packets that wait in it; 0: as the scheduler says.
   */
  uint32_t packets;
  /**
   * Bytes that wait in it; 0: as the scheduler says.
   */
  uint32_t bytes;
} fl_flow_options;

/**
 * What became of packets: accepted = sent + discarded + queued.
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
   * Came out.
   */
  uint64_t sent_packets;
  /**
   * Came out.
   */
  uint64_t sent_bytes;
  /**
   * Wait now.
   */
  uint64_t queued_packets;
  /**
   * Wait now.
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
   * The library's.
   */
  uint64_t id;
} fl_client;

/**
 * A packet's bytes, for a client.
 */
typedef struct fl_bytes {
  /**
   * Where they begin.
   */
  const void *data;
  /**
   * How many they are.
   */
  size_t length;
} fl_bytes;

/**
 * What a client is and was told.
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
   * Packets that can wait in its mailbox.
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
   * 1 once the daemon is gone, or has cut the client off; else 0.
   */
  uint32_t gone;
  /**
   * The library's.
   */
  uint32_t reserved;
  /**
   * Name of the class that the daemon put it into, ended by a zero; what is too long is cut off.
   */
  char class_name[64];
} fl_client_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The sentence of a code, in English. It is there for ever, and of a number that is no code it says so.
 */
const char *fl_strerror(int32_t code);

/**
 * Opens a scheduler of flows, without any.
 *
 * # Safety
 *
 * `options` and `scheduler` point to what they say; `discard` may be called with `argument` until the
 * scheduler is closed, from any thread that calls with it.
 */
fl_status fl_scheduler_open(const struct fl_scheduler_options *options, struct fl_scheduler *scheduler);

/**
 * Opens a scheduler of the classes of a link. Where the text is not sound, `why` has a sentence with its line,
 * of at most `why_size` bytes with the zero, else an empty one; it may be null. The link's rate is for who calls to
 * keep.
 *
 * # Safety
 *
 * As of fl_scheduler_open; `why` points to `why_size` bytes.
 */
fl_status fl_link_open(const struct fl_link_options *options,
                       struct fl_scheduler *scheduler,
                       char *why,
                       size_t why_size);

/**
 * Closes a scheduler; what waits in it is discarded first. A closed one is none for every other call.
 */
fl_status fl_scheduler_close(struct fl_scheduler scheduler);

/**
 * Adds a flow, idle.
 *
 * # Safety
 *
 * `options` and `flow` point to what they say.
 */
fl_status fl_flow_add(struct fl_scheduler scheduler, const struct fl_flow_options *options, fl_flow *flow);

/**
 * Gives a flow another weight, maximum length or limits; what is queued stays.
 *
 * # Safety
 *
 * `options` points to what it says.
 */
fl_status fl_flow_change(struct fl_scheduler scheduler, fl_flow flow, const struct fl_flow_options *options);

/**
 * Removes a flow; what waits in it is discarded.
 */
fl_status fl_flow_remove(struct fl_scheduler scheduler, fl_flow flow);

/**
 * The class of a link by its name in the file.
 *
 * # Safety
 *
 * `name` and `found` point to what they say.
 */
fl_status fl_class_find(struct fl_scheduler scheduler, const char *name, fl_flow *found);

/**
 * The class and the digest of a packet by the filters of its link, from the bytes of its frame, which begins with
 * what `layer` says (FL_ETHERNET, FL_IP). What matches no filter or cannot be read is of the default class.
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
 * Offers a burst, in order. Each packet's status says what became of it; what was accepted is the scheduler's,
 * what was rejected the caller's. `accepted` is how many there were, and may be null. Returns FL_OK if all were
 * accepted, else why the first of the others was rejected; statuses are set unless `accepted` is 0 and the code
 * is about the call itself. `now` is the caller's clock in nanoseconds, which only classes ask for.
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
 * Takes the next packets, `most` of them at most, which are the caller's again; `count` is how many came. `again`,
 * which may be null, is when to ask again: 0 where there may be more at once, UINT64_MAX where nothing waits,
 * else the time until which ceilings hold all that waits.
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
 * Counts of a flow or a class, or of all (0).
 *
 * # Safety
 *
 * `stats` points to what it says.
 */
fl_status fl_stats_get(struct fl_scheduler scheduler, fl_flow flow, struct fl_stats *stats);

/**
 * Attaches to the daemon that listens at a socket, as one client of it. Waits for its answer, five seconds at
 * most. Where there is none, or a refusal, `why` has a sentence of at most `why_size` bytes with the zero, else an
 * empty one; it may be null. Linux only, as all of fl_client.
 *
 * # Safety
 *
 * `socket` and `client` point to what they say, `why` to `why_size` bytes.
 */
fl_status fl_client_open(const char *socket,
                         struct fl_client *client,
                         char *why,
                         size_t why_size);

/**
 * Pushes packets into the client's mailbox, in order, until one is refused; `pushed` is how many there were, and
 * may be null. Never waits. Each is copied. Returns FL_OK if all were pushed, else why the next one was not:
 * FL_ERR_MAILBOX_FULL, FL_ERR_GONE, FL_ERR_LENGTH (of none), FL_ERR_TOO_LONG (for its class).
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
 * What a client is, and what the daemon told it so far. Costs a system call.
 *
 * # Safety
 *
 * `info` points to what it says.
 */
fl_status fl_client_get(struct fl_client client, struct fl_client_info *info);

/**
 * Leaves the daemon; what was pushed is still sent.
 */
fl_status fl_client_close(struct fl_client client);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FAIRLANE_H */

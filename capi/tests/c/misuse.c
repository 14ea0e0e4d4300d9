/* Misuse of the interface, which returns a code without undefined behaviour. */
#define _POSIX_C_SOURCE 200809L
#include <fairlane.h>

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

static void expect(int line, const char *call, int32_t got, int32_t wanted)
{
    if (got == wanted)
        return;
    fprintf(stderr, "%d: %s: %d (%s) instead of %d (%s)\n", line, call, got, fl_strerror(got), wanted,
            fl_strerror(wanted));
    failures++;
}

#define EXPECT(call, code) expect(__LINE__, #call, (call), (code))

static const fl_scheduler_options PLAIN = {.size = sizeof(fl_scheduler_options)};
static const fl_flow_options FLOW = {.size = sizeof(fl_flow_options), .weight = 1, .max_length = 100};

static fl_scheduler scheduler(void)
{
    fl_scheduler made;
    EXPECT(fl_scheduler_open(&PLAIN, &made), FL_OK);
    return made;
}

static fl_flow flow_of(fl_scheduler link)
{
    fl_flow flow;
    EXPECT(fl_flow_add(link, &FLOW, &flow), FL_OK);
    return flow;
}

/* Returns an address within `memory` that is misaligned for a number. */
static void *askew(void *memory)
{
    return (char *)memory + 1;
}

static void sizes(void)
{
    fl_scheduler made = {7};
    fl_scheduler_options options = PLAIN;
    struct {
        fl_scheduler_options known;
        uint64_t added;
    } later = {PLAIN, 0};
    const size_t wrong[] = {0, 1, sizeof options - 1, 5000, SIZE_MAX};

    EXPECT(fl_scheduler_open(NULL, &made), FL_ERR_POINTER);
    EXPECT(made.id == 0, 1);
    EXPECT(fl_scheduler_open(&options, NULL), FL_ERR_POINTER);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        options.size = wrong[i];
        EXPECT(fl_scheduler_open(&options, &made), FL_ERR_SIZE);
    }
    later.known.size = sizeof later;
    EXPECT(fl_scheduler_open(&later.known, &made), FL_OK);
    EXPECT(fl_scheduler_close(made), FL_OK);
    later.added = 1;
    EXPECT(fl_scheduler_open(&later.known, &made), FL_ERR_SIZE);

    static char room[sizeof(fl_scheduler_options) + 16];
    EXPECT(fl_scheduler_open(askew(room), &made), FL_ERR_POINTER);
    EXPECT(fl_scheduler_open(&PLAIN, askew(room)), FL_ERR_POINTER);

    options = PLAIN;
    options.algorithm = "none such";
    EXPECT(fl_scheduler_open(&options, &made), FL_ERR_ALGORITHM);
    options.algorithm = "\xff";
    EXPECT(fl_scheduler_open(&options, &made), FL_ERR_TEXT);
    static const char *const names[] = {"fifo", "drr", "wf2q", "wf2q+", "qfq", "qfq+", "s-kps", "gfq", "priority",
                                        "sfq", "wfq", "scfq", "wf2q++", "s-kps+", "gfq+", "drr+"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        options.algorithm = names[i];
        options.aggregate = i % 2 ? 3 : UINT32_MAX;
        EXPECT(fl_scheduler_open(&options, &made), FL_OK);
        fl_packet packet = {.flow = flow_of(made), .length = 100};
        size_t count;
        EXPECT(fl_enqueue(made, 0, &packet, 1, NULL), FL_OK);
        EXPECT(fl_dequeue(made, 0, &packet, 1, &count, NULL), FL_OK);
        EXPECT((int32_t)count, 1);
        EXPECT(fl_scheduler_close(made), FL_OK);
    }
}

static void handles(void)
{
    fl_scheduler link = scheduler(), other = scheduler();
    fl_flow flow = flow_of(link), made;
    fl_packet packet = {.flow = flow, .length = 100};
    fl_stats stats = {.size = sizeof stats};
    uint64_t digest;
    size_t count;

    EXPECT(fl_scheduler_close(link), FL_OK);
    fl_scheduler again = scheduler();
    const fl_scheduler gone[] = {link,
                                 {0},
                                 {1},
                                 {UINT64_MAX},
                                 {again.id + 1},
                                 {again.id ^ UINT64_C(1) << 55},
                                 {again.id ^ UINT64_C(3) << 56}};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        EXPECT(fl_flow_add(gone[i], &FLOW, &made), FL_ERR_HANDLE);
        EXPECT(fl_flow_change(gone[i], flow, &FLOW), FL_ERR_HANDLE);
        EXPECT(fl_flow_remove(gone[i], flow), FL_ERR_HANDLE);
        EXPECT(fl_enqueue(gone[i], 0, &packet, 1, NULL), FL_ERR_HANDLE);
        EXPECT(fl_dequeue(gone[i], 0, &packet, 1, &count, NULL), FL_ERR_HANDLE);
        EXPECT((int32_t)count, 0);
        EXPECT(fl_stats_get(gone[i], 0, &stats), FL_ERR_HANDLE);
        EXPECT(fl_class_find(gone[i], "voice", &made), FL_ERR_HANDLE);
        EXPECT(fl_classify(gone[i], FL_IP, "", 1, &made, &digest), FL_ERR_HANDLE);
        EXPECT(fl_scheduler_close(gone[i]), FL_ERR_HANDLE);
    }
    /* A flow number of another scheduler is valid only if this one has as many flows. */
    packet.flow = flow;
    EXPECT(fl_enqueue(other, 0, &packet, 1, NULL), FL_ERR_FLOW);
    EXPECT(fl_class_find(other, "voice", &made), FL_ERR_KIND);
    EXPECT(fl_classify(other, FL_IP, "", 1, &made, &digest), FL_ERR_KIND);
    EXPECT(fl_classify(other, 2, "", 1, &made, &digest), FL_ERR_LAYER);
    EXPECT(fl_scheduler_close(other), FL_OK);
    EXPECT(fl_scheduler_close(again), FL_OK);
}

static void flows(void)
{
    fl_scheduler link = scheduler();
    fl_flow made;
    fl_flow_options options = FLOW;
    const uint32_t weights[] = {0, 1000001, UINT32_MAX}, lengths[] = {0, 65536, UINT32_MAX};
    for (int i = 0; i < 3; i++) {
        options = FLOW;
        options.weight = weights[i];
        EXPECT(fl_flow_add(link, &options, &made), FL_ERR_WEIGHT);
        options = FLOW;
        options.max_length = lengths[i];
        EXPECT(fl_flow_add(link, &options, &made), FL_ERR_LENGTH);
    }
    EXPECT(fl_flow_add(link, NULL, &made), FL_ERR_POINTER);
    EXPECT(fl_flow_add(link, &FLOW, NULL), FL_ERR_POINTER);

    fl_flow first = flow_of(link);
    EXPECT(fl_flow_remove(link, first), FL_OK);
    EXPECT(fl_flow_remove(link, first), FL_ERR_FLOW);
    fl_flow second = flow_of(link);
    EXPECT(first != second, 1);
    const fl_flow gone[] = {first, 0, second + 1, second + (UINT64_C(1) << 32), UINT64_MAX};
    for (size_t i = 0; i < sizeof gone / sizeof *gone; i++) {
        fl_packet packet = {.flow = gone[i], .length = 100};
        EXPECT(fl_enqueue(link, 0, &packet, 1, NULL), FL_ERR_FLOW);
        EXPECT(packet.status, FL_ERR_FLOW);
        EXPECT(fl_flow_change(link, gone[i], &FLOW), FL_ERR_FLOW);
        fl_stats stats = {.size = sizeof stats};
        EXPECT(fl_stats_get(link, gone[i], &stats), gone[i] == 0 ? FL_OK : FL_ERR_FLOW);
    }

    fl_packet packet = {.flow = second, .length = 100};
    EXPECT(fl_enqueue(link, 0, &packet, 1, NULL), FL_OK);
    options = FLOW;
    options.max_length = 99;
    EXPECT(fl_flow_change(link, second, &options), FL_ERR_QUEUED);
    options.max_length = 100;
    options.packets = 1;
    EXPECT(fl_flow_change(link, second, &options), FL_OK);
    EXPECT(fl_enqueue(link, 0, &packet, 1, NULL), FL_ERR_QUEUE_FULL);
    EXPECT(fl_scheduler_close(link), FL_OK);
}

static void packets(void)
{
    fl_scheduler link = scheduler();
    fl_flow flow = flow_of(link);
    fl_packet burst[4] = {{.flow = flow, .length = 100}, {.flow = flow, .length = 101},
                          {.flow = flow, .length = 0},   {.flow = flow, .length = 65536 + 100}};
    size_t count = 9;
    uint64_t again = 9;
    EXPECT(fl_enqueue(link, 0, burst, 4, &count), FL_ERR_TOO_LONG);
    EXPECT((int32_t)count, 1);
    EXPECT(burst[0].status, FL_OK);
    EXPECT(burst[1].status, FL_ERR_TOO_LONG);
    EXPECT(burst[2].status, FL_ERR_LENGTH);
    EXPECT(burst[3].status, FL_ERR_LENGTH);

    EXPECT(fl_enqueue(link, 0, NULL, 1, NULL), FL_ERR_POINTER);
    EXPECT(fl_enqueue(link, 0, askew(burst), 1, NULL), FL_ERR_POINTER);
    EXPECT(fl_enqueue(link, 0, burst, SIZE_MAX, NULL), FL_ERR_LENGTH);
    EXPECT(fl_enqueue(link, 0, burst, 1, askew(&count)), FL_ERR_POINTER);
    EXPECT(fl_enqueue(link, 0, NULL, 0, NULL), FL_OK);

    EXPECT(fl_dequeue(link, 0, NULL, 1, &count, NULL), FL_ERR_POINTER);
    EXPECT(fl_dequeue(link, 0, burst, 1, NULL, NULL), FL_ERR_POINTER);
    EXPECT(fl_dequeue(link, 0, burst, 1, &count, askew(&again)), FL_ERR_POINTER);
    EXPECT(fl_dequeue(link, 0, burst, SIZE_MAX, &count, NULL), FL_ERR_LENGTH);
    EXPECT(fl_dequeue(link, 0, NULL, 0, &count, &again), FL_OK);
    EXPECT(fl_dequeue(link, 0, burst, 4, &count, &again), FL_OK);
    EXPECT(count == 1 && again == UINT64_MAX && burst[0].length == 100 && burst[0].flow == flow, 1);

    fl_stats stats = {.size = 8};
    EXPECT(fl_stats_get(link, flow, &stats), FL_ERR_SIZE);
    EXPECT(fl_stats_get(link, flow, NULL), FL_ERR_POINTER);
    stats.size = sizeof stats;
    EXPECT(fl_stats_get(link, flow, &stats), FL_OK);
    EXPECT(stats.accepted_packets == 1 && stats.sent_bytes == 100 && stats.dropped_packets == 1, 1);
    EXPECT(fl_scheduler_close(link), FL_OK);
}

/* A callback that calls the scheduler, and a second thread that calls it meanwhile. */
struct back {
    fl_scheduler link;
    fl_flow flow;
    fl_packet *burst;
    unsigned called;
};

static void *beside(void *argument)
{
    struct back *back = argument;
    fl_packet packet = {.flow = back->flow, .length = 1};
    EXPECT(fl_enqueue(back->link, 0, &packet, 1, NULL), FL_ERR_BUSY);
    EXPECT(fl_scheduler_close(back->link), FL_ERR_BUSY);
    return NULL;
}

static void call_back(void *argument, const fl_packet *packet)
{
    struct back *back = argument;
    fl_flow made;
    size_t count;
    fl_stats stats = {.size = sizeof stats};
    pthread_t thread;

    back->called++;
    EXPECT(packet->status, FL_ERR_FLUSHED);
    EXPECT(fl_enqueue(back->link, 0, back->burst, 1, NULL), FL_ERR_BUSY);
    EXPECT(fl_dequeue(back->link, 0, back->burst, 1, &count, NULL), FL_ERR_BUSY);
    EXPECT(fl_flow_add(back->link, &FLOW, &made), FL_ERR_BUSY);
    EXPECT(fl_flow_remove(back->link, back->flow), FL_ERR_BUSY);
    EXPECT(fl_stats_get(back->link, 0, &stats), FL_ERR_BUSY);
    EXPECT(fl_scheduler_close(back->link), FL_ERR_BUSY);
    /* Another scheduler may be used. */
    EXPECT(fl_scheduler_close(scheduler()), FL_OK);
    if (pthread_create(&thread, NULL, beside, back) == 0)
        pthread_join(thread, NULL);
}

static void callbacks(void)
{
    fl_packet burst[2];
    struct back back = {.burst = burst};
    fl_scheduler_options options = PLAIN;
    options.discard = call_back;
    options.argument = &back;
    EXPECT(fl_scheduler_open(&options, &back.link), FL_OK);
    back.flow = flow_of(back.link);
    fl_flow other = flow_of(back.link);
    for (int i = 0; i < 2; i++) {
        burst[0] = (fl_packet){.flow = back.flow, .length = 100};
        burst[1] = (fl_packet){.flow = other, .length = 100};
        EXPECT(fl_enqueue(back.link, 0, burst, 2, NULL), FL_OK);
    }
    EXPECT(fl_flow_remove(back.link, back.flow), FL_OK);
    EXPECT((int32_t)back.called, 2);
    EXPECT(fl_scheduler_close(back.link), FL_OK);
    EXPECT((int32_t)back.called, 4);
}

static void texts(void)
{
    fl_scheduler made;
    fl_flow found;
    uint64_t digest;
    char why[64];
    fl_link_options options = {.size = sizeof options};
    EXPECT(fl_link_open(&options, &made, NULL, 0), FL_ERR_POINTER);
    /* `why` is a valid string for any code. */
    memset(why, 'x', sizeof why);
    EXPECT(fl_link_open(&options, &made, why, sizeof why), FL_ERR_POINTER);
    EXPECT(why[0], 0);
    options.text = "[[link]]\nname = 7\n";
    memset(why, 'x', sizeof why);
    EXPECT(fl_link_open(&options, &made, why, 40), FL_ERR_SITE);
    EXPECT(strncmp(why, "site:", 5) == 0 && strlen(why) <= 39 && why[40] == 'x', 1);
    EXPECT(fl_link_open(&options, &made, NULL, 100), FL_ERR_SITE);
    options.text = "\xff";
    EXPECT(fl_link_open(&options, &made, why, sizeof why), FL_ERR_TEXT);

    options.text = "[[link]]\nname = \"up\"\nto = \"outside\"\nrate = \"1mbit\"\n"
                   "[[link.class]]\nname = \"all\"\ndefault = true\n";
    options.link = "down";
    EXPECT(fl_link_open(&options, &made, why, sizeof why), FL_ERR_SITE);
    options.link = NULL;
    EXPECT(fl_link_open(&options, &made, why, sizeof why), FL_OK);
    EXPECT(fl_flow_add(made, &FLOW, &found), FL_ERR_KIND);
    EXPECT(fl_flow_remove(made, 1), FL_ERR_KIND);
    EXPECT(fl_class_find(made, "none", &found), FL_ERR_FLOW);
    EXPECT(fl_class_find(made, NULL, &found), FL_ERR_POINTER);
    EXPECT(fl_class_find(made, "all", &found), FL_OK);
    fl_packet burst[3] = {{.flow = found, .length = 100}, {.flow = 1, .length = 100}, {.flow = found, .length = 65535}};
    size_t count;
    EXPECT(fl_enqueue(made, UINT64_MAX, burst, 3, &count), FL_ERR_FLOW);
    EXPECT(burst[2].status, FL_ERR_TOO_LONG);
    EXPECT(fl_classify(made, FL_ETHERNET, NULL, 0, &found, &digest), FL_OK);
    EXPECT(found == burst[0].flow && digest == 0, 1);
    EXPECT(fl_classify(made, FL_ETHERNET, NULL, 9, &found, &digest), FL_ERR_POINTER);
    EXPECT(fl_classify(made, FL_ETHERNET, "", 1, NULL, &digest), FL_ERR_POINTER);
    EXPECT(fl_classify(made, FL_ETHERNET, "", 1, &found, NULL), FL_ERR_POINTER);
    /* A clock that goes back counts as unchanged. */
    EXPECT(fl_dequeue(made, 0, burst, 3, &count, NULL), FL_OK);
    EXPECT((int32_t)count, 1);
    EXPECT(fl_scheduler_close(made), FL_OK);
}

static void clients(void)
{
    fl_client client;
    fl_client_info info = {.size = sizeof info};
    char why[200] = "x";
    EXPECT(fl_client_open(NULL, &client, NULL, 0), FL_ERR_POINTER);
    EXPECT(fl_client_open(NULL, &client, why, sizeof why), FL_ERR_POINTER);
    EXPECT(why[0], 0);
    EXPECT(fl_client_open("/nonexistent/socket", &client, why, sizeof why), FL_ERR_UNREACHABLE);
    EXPECT(strstr(why, "/nonexistent/socket") != NULL, 1);
    EXPECT(fl_client_push(client, NULL, 0, NULL), FL_ERR_HANDLE);
    EXPECT(fl_client_get(client, &info), FL_ERR_HANDLE);
    EXPECT(fl_client_close(client), FL_ERR_HANDLE);
    fl_scheduler link = scheduler();
    EXPECT(fl_client_close((fl_client){link.id}), FL_ERR_HANDLE);
    EXPECT(fl_scheduler_close(link), FL_OK);
}

static void codes(void)
{
    for (int32_t code = 0; code >= FL_ERR_LAYER; code--)
        EXPECT(strcmp(fl_strerror(code), fl_strerror(1)) != 0, 1);
    EXPECT(strcmp(fl_strerror(FL_ERR_LAYER - 1), fl_strerror(1)), 0);
    EXPECT(strcmp(fl_strerror(INT32_MIN), fl_strerror(INT32_MAX)), 0);
}

int main(void)
{
    sizes();
    handles();
    flows();
    packets();
    callbacks();
    texts();
    clients();
    codes();
    if (failures == 0)
        printf("every misuse has its code\n");
    return failures == 0 ? 0 : 1;
}

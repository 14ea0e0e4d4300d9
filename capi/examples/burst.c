/* A loop like DPDK's: bursts of 32 pointers from rx, through the scheduler, to tx.
 *
 * Here rx and tx are a pool of buffers instead of a device: the offered load is twice the capacity, half from each
 * of two ports. rte_eth_rx_burst() and rte_eth_tx_burst() have the same arrays as arguments. */
#include <fairlane.h>

#include <stdio.h>
#include <stdlib.h>

enum { BURST = 32, PORTS = 2, BUFFERS = 1024, ROUNDS = 1000, LENGTH = 1000 };

struct buffer {
    unsigned port;
    uint32_t length;
};

static struct buffer buffers[BUFFERS];
static struct buffer *spare[BUFFERS];
static size_t spares;
static unsigned long received, sent[PORTS], rejected, discarded;

static void give_back(struct buffer *buffer)
{
    spare[spares++] = buffer;
}

static uint16_t rx_burst(struct buffer **burst, uint16_t most)
{
    uint16_t count = 0;
    while (count < most && spares > 0) {
        burst[count] = spare[--spares];
        burst[count]->port = count % PORTS;
        burst[count]->length = LENGTH;
        count++;
    }
    received += count;
    return count;
}

static void tx_burst(struct buffer **burst, uint16_t count)
{
    for (uint16_t i = 0; i < count; i++) {
        sent[burst[i]->port]++;
        give_back(burst[i]);
    }
}

static void discard(void *argument, const fl_packet *packet)
{
    (void)argument;
    discarded++;
    give_back(packet->data);
}

static void check(const char *what, fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s: %s\n", what, fl_strerror(status));
        exit(1);
    }
}

static void forward(fl_scheduler link, const fl_flow *flows)
{
    struct buffer *burst[BURST];
    fl_packet packets[BURST];
    size_t accepted, count;

    uint16_t came = rx_burst(burst, BURST);
    for (uint16_t i = 0; i < came; i++)
        packets[i] = (fl_packet){
            .data = burst[i], .flow = flows[burst[i]->port], .length = burst[i]->length};
    fl_status status = fl_enqueue(link, 0, packets, came, &accepted);
    if (status != FL_OK && status != FL_ERR_QUEUE_FULL)
        check("enqueue", status);
    for (uint16_t i = 0; i < came; i++) {
        if (packets[i].status != FL_OK) {
            give_back(packets[i].data);
            rejected++;
        }
    }
    if (accepted > came)
        exit(1);

    check("dequeue", fl_dequeue(link, 0, packets, BURST / 2, &count, NULL));
    for (size_t i = 0; i < count; i++)
        burst[i] = packets[i].data;
    tx_burst(burst, (uint16_t)count);
}

int main(void)
{
    const uint32_t weights[PORTS] = {3, 1};
    fl_scheduler link;
    fl_flow flows[PORTS];

    fl_scheduler_options options = {
        .size = sizeof options, .algorithm = "qfq+", .flow_packets = 128, .discard = discard};
    check("open", fl_scheduler_open(&options, &link));
    for (int i = 0; i < PORTS; i++) {
        fl_flow_options flow = {.size = sizeof flow, .weight = weights[i], .max_length = LENGTH};
        check("flow", fl_flow_add(link, &flow, &flows[i]));
    }
    for (int i = 0; i < BUFFERS; i++)
        give_back(&buffers[i]);

    for (int round = 0; round < ROUNDS; round++)
        forward(link, flows);

    fl_stats stats = {.size = sizeof stats};
    check("stats", fl_stats_get(link, 0, &stats));
    check("close", fl_scheduler_close(link));
    unsigned long all = sent[0] + sent[1];
    double share = (double)sent[0] / (double)all;
    printf("received %lu, sent %lu, rejected %lu, discarded %lu; of what was sent %.1f%% of weight 3\n",
           received, all, rejected, discarded, 100 * share);

    /* Every buffer is back in its place, and every packet was reported once. */
    if (spares != BUFFERS || received != all + rejected + discarded)
        return 1;
    if (stats.sent_packets != all || stats.dropped_packets != rejected || stats.queued_packets != discarded)
        return 1;
    return share > 0.74 && share < 0.76 ? 0 : 1;
}

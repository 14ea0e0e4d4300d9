/* A plain loop: two backlogged flows of weights 3 and 1 share the departures 3 to 1. */
#include <fairlane.h>

#include <stdio.h>

enum { PACKETS = 40, LENGTH = 1000 };

static int failed(const char *what, fl_status status)
{
    fprintf(stderr, "%s: %s\n", what, fl_strerror(status));
    return 1;
}

int main(void)
{
    static char payload[2][PACKETS];
    const uint32_t weights[2] = {3, 1};
    fl_scheduler link;
    fl_flow flows[2];
    unsigned sent[2] = {0, 0};

    fl_scheduler_options options = {.size = sizeof options, .algorithm = "qfq"};
    fl_status status = fl_scheduler_open(&options, &link);
    if (status != FL_OK)
        return failed("open", status);

    for (int i = 0; i < 2; i++) {
        fl_flow_options flow = {.size = sizeof flow, .weight = weights[i], .max_length = LENGTH};
        status = fl_flow_add(link, &flow, &flows[i]);
        if (status != FL_OK)
            return failed("flow", status);
    }
    for (int n = 0; n < PACKETS; n++) {
        fl_packet both[2] = {
            {.data = &payload[0][n], .flow = flows[0], .length = LENGTH},
            {.data = &payload[1][n], .flow = flows[1], .length = LENGTH},
        };
        status = fl_enqueue(link, 0, both, 2, NULL);
        if (status != FL_OK)
            return failed("enqueue", status);
    }
    for (int n = 0; n < PACKETS; n++) {
        fl_packet packet;
        size_t count;
        status = fl_dequeue(link, 0, &packet, 1, &count, NULL);
        if (status != FL_OK)
            return failed("dequeue", status);
        if (count != 1) {
            fprintf(stderr, "nothing waits after %d of %d packets\n", n, 2 * PACKETS);
            return 1;
        }
        sent[packet.flow == flows[1]]++;
    }
    printf("%u of weight 3, %u of weight 1\n", sent[0], sent[1]);

    status = fl_scheduler_close(link);
    if (status != FL_OK)
        return failed("close", status);
    return sent[0] >= 29 && sent[0] <= 31 ? 0 : 1;
}

/* The cost of a packet in and out through the library: prints nanoseconds of processor time per pair.
 *
 * pairs FLOWS BACKLOG BURST PAIRS: the same loop as in pairs.rs. */
#define _POSIX_C_SOURCE 200809L
#include <fairlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 256, LENGTH = 1000 };

static double cpu_time(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static void check(fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s\n", fl_strerror(status));
        exit(1);
    }
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    size_t flows = strtoul(argv[1], NULL, 10), backlog = strtoul(argv[2], NULL, 10);
    size_t burst = strtoul(argv[3], NULL, 10), pairs = strtoul(argv[4], NULL, 10);
    fl_flow *names = calloc(flows, sizeof *names);
    if (!names || flows == 0 || burst == 0 || burst > MOST)
        return 2;

    fl_scheduler link;
    fl_scheduler_options options = {.size = sizeof options, .algorithm = "qfq"};
    check(fl_scheduler_open(&options, &link));
    for (size_t i = 0; i < flows; i++) {
        fl_flow_options flow = {.size = sizeof flow, .weight = 1, .max_length = LENGTH};
        check(fl_flow_add(link, &flow, &names[i]));
    }
    static char packet;
    for (size_t i = 0; i < backlog * flows; i++) {
        fl_packet one = {.data = &packet, .flow = names[i % flows], .length = LENGTH};
        check(fl_enqueue(link, 0, &one, 1, NULL));
    }

    fl_packet in[MOST], out[MOST];
    size_t next = 0, count, seen = 0;
    double start = cpu_time();
    for (size_t done = 0; done < pairs; done += burst) {
        for (size_t i = 0; i < burst; i++) {
            in[i] = (fl_packet){.data = &packet + next % 2, .flow = names[next], .length = LENGTH};
            next = next + 1 == flows ? 0 : next + 1;
        }
        check(fl_enqueue(link, 0, in, burst, NULL));
        check(fl_dequeue(link, 0, out, burst, &count, NULL));
        for (size_t i = 0; i < count; i++)
            seen += (size_t)out[i].data & 1;
    }
    double took = cpu_time() - start;
    check(fl_scheduler_close(link));
    free(names);
    printf("%f %zu\n", took / (double)pairs, seen);
    return 0;
}

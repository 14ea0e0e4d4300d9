/* The classes of a link from the text of a site file, on a virtual clock: filters assign frames to classes,
 * a class gets its guaranteed rate, and every packet is accounted for. */
#include <fairlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char SITE[] =
    "[[link]]\n"
    "name = \"up\"\n"
    "rate = \"8mbit\"\n"
    "algorithm = \"wf2q+\"\n"
    "[[link.class]]\n"
    "name = \"voice\"\n"
    "rate = \"1mbit\"\n"
    "ceil = \"2mbit\"\n"
    "limit = { packets = 50 }\n"
    "[[link.class]]\n"
    "name = \"rest\"\n"
    "limit = { packets = 50 }\n"
    "default = true\n"
    "[[link.filter]]\n"
    "class = \"voice\"\n"
    "dscp = \"ef\"\n";

enum { LENGTH = 1000, SECONDS = 1 };

/* 1000 bytes take a millisecond at 8 Mbit/s. */
static const uint64_t SLOT = 1000000, SECOND = 1000000000;

static unsigned long discarded;

static void discard(void *argument, const fl_packet *packet)
{
    (void)packet;
    ++*(unsigned long *)argument;
}

static void check(const char *what, fl_status status)
{
    if (status != FL_OK) {
        fprintf(stderr, "%s: %s\n", what, fl_strerror(status));
        exit(1);
    }
}

/* Writes an IPv4 packet of UDP with this DSCP. */
static void frame_of(unsigned char *frame, unsigned dscp)
{
    const unsigned char header[] = {0x45, (unsigned char)(dscp << 2), LENGTH >> 8, LENGTH & 255, 0, 0, 0, 0, 64, 17,
                                    0,    0,                          192,         168,          0, 1, 10, 0, 0, 1};
    memset(frame, 0, LENGTH);
    memcpy(frame, header, sizeof header);
}

int main(void)
{
    static unsigned char frames[2][LENGTH];
    char why[200] = "";
    fl_scheduler link;
    fl_flow voice;
    unsigned long offered = 0, rejected = 0, sent[2] = {0, 0};

    fl_link_options options = {
        .size = sizeof options, .text = SITE, .link = "up", .discard = discard, .argument = &discarded};
    if (fl_link_open(&options, &link, why, sizeof why) != FL_OK) {
        fprintf(stderr, "%s\n", why);
        return 1;
    }
    check("class", fl_class_find(link, "voice", &voice));
    frame_of(frames[0], 46);
    frame_of(frames[1], 0);

    for (uint64_t now = 0; now < SECONDS * SECOND; now += SLOT) {
        /* Each class offers as much as the link carries. */
        for (int i = 0; i < 2; i++) {
            fl_packet packet = {.data = frames[i], .length = LENGTH};
            check("classify", fl_classify(link, FL_IP, frames[i], LENGTH, &packet.flow, &packet.digest));
            if ((packet.flow == voice) != (i == 0))
                return 1;
            rejected += fl_enqueue(link, now, &packet, 1, NULL) != FL_OK;
            offered++;
        }
        fl_packet packet;
        size_t count;
        uint64_t again;
        check("dequeue", fl_dequeue(link, now, &packet, 1, &count, &again));
        if (count == 1)
            sent[packet.data == frames[1]]++;
    }

    fl_stats stats = {.size = sizeof stats};
    check("stats", fl_stats_get(link, 0, &stats));
    unsigned long during = discarded;
    check("close", fl_scheduler_close(link));
    printf("voice %.2f Mbit/s of 1 that it was promised, the rest %.2f; %lu of %lu rejected, %lu gave way, %lu discarded at the end\n",
           sent[0] * 8e-3 / SECONDS, sent[1] * 8e-3 / SECONDS, rejected, offered, during, discarded - during);

    if (offered != sent[0] + sent[1] + rejected + discarded || stats.queued_packets != discarded - during)
        return 1;
    return sent[0] >= 124 && sent[0] <= 140 && sent[0] + sent[1] == SECONDS * 1000 ? 0 : 1;
}

/* A client of a daemon: attaches to its socket, pushes packets, and prints their counters.
 *
 * attach SOCKET PACKETS BYTES */
#define _POSIX_C_SOURCE 200809L
#include <fairlane.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { BURST = 32 };

static void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

int main(int argc, char **argv)
{
    char why[300] = "";
    fl_client client;
    if (argc != 4) {
        fprintf(stderr, "write: attach SOCKET PACKETS BYTES\n");
        return 2;
    }
    size_t left = strtoul(argv[2], NULL, 10), length = strtoul(argv[3], NULL, 10);
    char *bytes = calloc(1, length ? length : 1);
    fl_status status = fl_client_open(argv[1], &client, why, sizeof why);
    if (status != FL_OK || !bytes) {
        fprintf(stderr, "%s: %s\n", fl_strerror(status), why);
        free(bytes);
        return 1;
    }

    fl_bytes burst[BURST];
    for (int i = 0; i < BURST; i++)
        burst[i] = (fl_bytes){.data = bytes, .length = length};
    size_t pushed = 0, in_all = left;
    while (left > 0) {
        status = fl_client_push(client, burst, left < BURST ? left : BURST, &pushed);
        left -= pushed;
        if (status == FL_ERR_MAILBOX_FULL)
            nap();
        else if (status != FL_OK)
            break;
    }

    fl_client_info info = {.size = sizeof info};
    while (status == FL_OK && fl_client_get(client, &info) == FL_OK && info.taken < in_all && !info.gone)
        nap();
    printf("%s weight %u: %zu pushed, %llu taken\n", info.class_name, info.weight, in_all - left,
           (unsigned long long)info.taken);
    if (status != FL_OK)
        fprintf(stderr, "%s\n", fl_strerror(status));
    free(bytes);
    return fl_client_close(client) == FL_OK && status == FL_OK ? 0 : 1;
}

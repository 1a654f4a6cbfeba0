/*
 * Signals go to the program's own threads, and a small stack is enough, also in
 * a program with much memory of its own for each thread.
 */

#include "report.h"
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>

/* Part of every thread's stack. */
static _Thread_local char own[1 << 20];

static pthread_t main_thread;
static atomic_int strangers, handled;

static void on_signal(int signal)
{
    (void)signal;
    atomic_fetch_add(pthread_equal(pthread_self(), main_thread) ? &handled : &strangers, 1);
}

/* Takes signals that every other thread of the program has blocked. */
static void *take_signals(void *semaphore)
{
    sigset_t set;
    int signal;

    sigemptyset(&set);
    sigaddset(&set, SIGUSR2);
    for (int i = 0; i < 1000; i++) {
        if (sigwait(&set, &signal))
            exit(2);
        sem_post(semaphore);
    }
    return NULL;
}

/* Each is taken by the thread that waits for it, though the library's thread is there. */
static void waited_for(void)
{
    pthread_t taker;
    sem_t taken;

    sem_init(&taken, 0, 0);
    if (pthread_create(&taker, NULL, take_signals, &taken))
        exit(2);
    for (int i = 0; i < 1000; i++) {
        kill(getpid(), SIGUSR2);
        while (sem_wait(&taken))
            ;
    }
    pthread_join(taker, NULL);
    sem_destroy(&taken);
    puts("all were taken");
}

int main(void)
{
    static const int signals[] = {SIGALRM, SIGCHLD, SIGUSR1, SIGTERM, SIGHUP};
    struct xs_handle *h = must_open(0);
    struct sigaction action;
    sigset_t before, after;
    unsigned int count;
    int wrong = 0;

    own[sizeof(own) - 1] = 1;
    main_thread = pthread_self();
    memset(&action, 0, sizeof(action));
    action.sa_handler = on_signal;
    for (size_t i = 0; i < sizeof(signals) / sizeof(*signals); i++) {
        /* Some let the system go on with what they interrupt; of others, the library is told. */
        action.sa_flags = i % 2 ? SA_RESTART : 0;
        sigaction(signals[i], &action, NULL);
    }
    sigemptyset(&before);
    sigaddset(&before, SIGUSR2);
    sigprocmask(SIG_BLOCK, &before, NULL);
    sigprocmask(SIG_BLOCK, NULL, &before);
    tell_bool("watch", TRY(xs_watch(h, "/s", "t")));
    sigprocmask(SIG_BLOCK, NULL, &after);
    for (int signal = 1; signal < NSIG; signal++)
        wrong += sigismember(&before, signal) != sigismember(&after, signal);
    tell_number("signals blocked otherwise", wrong);
    free(xs_read_watch(h, &count));
    for (int i = 0; i < 1000; i++) {
        kill(getpid(), signals[(size_t)i % (sizeof(signals) / sizeof(*signals))]);
        if (!xs_write(h, XBT_NULL, "/s", "", 0))
            wrong++;
        free(xs_read_watch(h, &count));
    }
    waited_for();
    tell_number("failures", wrong);
    tell_number("handled by the library's thread", strangers);
    tell_answer("handled by ours", handled > 0);
    xs_close(h);
    return own[0];
}

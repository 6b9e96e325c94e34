/* Stands in for cuFile and CUDA: the memory of its "device" is memory of this process, whose addresses have a bit
   set that makes them invalid for the processor. So a program that touches it itself crashes. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#define DEVICE_BIT (1ull << 62)

typedef struct { int err, cu_err; } status_t;
typedef struct { int type; union { int fd; void *handle; } handle; const void *fs_ops; } descr_t;

/* What the tests set. */
int standin_register_error, standin_read_error, standin_copy_error, standin_pin_error;
size_t standin_read_max;
/* How many of the next reads deliver nothing: they fail with EINTR or EAGAIN, or return 0. */
int standin_interrupts, standin_refusals, standin_empty_reads;
/* What is renamed while a file is registered. */
const char *standin_rename_from, *standin_rename_to;
/* What the tests look at. */
int standin_opened, standin_handles, standin_reads, standin_copies, standin_pinned;

status_t cuFileDriverOpen(void) { standin_opened++; return (status_t){0, 0}; }
status_t cuFileGetVersion(int *version) { *version = 1140; return (status_t){0, 0}; }

status_t cuFileHandleRegister(void **fh, descr_t *descr) {
    if (descr->type != 1 || descr->fs_ops != NULL) return (status_t){5022, 0};
    if (standin_rename_from && rename(standin_rename_from, standin_rename_to)) return (status_t){5030, 0};
    if (standin_register_error) return (status_t){standin_register_error, 700};
    standin_handles++;
    *fh = (void *)(long)(descr->handle.fd + 1);
    return (status_t){0, 0};
}

void cuFileHandleDeregister(void *fh) { (void)fh; standin_handles--; }

ssize_t cuFileRead(void *fh, void *base, size_t size, off_t offset, off_t at) {
    unsigned long long address = (unsigned long long)base;
    if (!(address & DEVICE_BIT)) return -5012;
    if (standin_read_error) return -standin_read_error;
    if (standin_interrupts) { standin_interrupts--; errno = EINTR; return -1; }
    if (standin_refusals) { standin_refusals--; errno = EAGAIN; return -1; }
    if (standin_empty_reads) { standin_empty_reads--; return 0; }
    if (standin_read_max && size > standin_read_max) size = standin_read_max;
    standin_reads++;
    char *memory = (char *)(address & ~DEVICE_BIT) + at;
    /* The file is open for direct reads, which need aligned memory; cuFile goes through buffers of its own then. */
    static _Alignas(4096) char buffer[4 << 20];
    size_t skip = offset % 4096, whole = (skip + size + 4095) / 4096 * 4096;
    if (whole > sizeof buffer) { whole = sizeof buffer; }
    ssize_t got = pread((int)(long)fh - 1, buffer, whole, offset - skip);
    if (got < 0) return -1;
    if ((size_t)got <= skip) return 0;
    size_t found = (size_t)got - skip < size ? (size_t)got - skip : size;
    memcpy(memory, buffer + skip, found);
    return found;
}

int cuMemHostRegister_v2(void *memory, size_t size, unsigned flags) {
    (void)memory; (void)size; (void)flags;
    if (standin_pin_error) return standin_pin_error;
    standin_pinned++;
    return 0;
}

int cuMemHostUnregister(void *memory) { (void)memory; standin_pinned--; return 0; }

int cuMemcpyHtoD_v2(unsigned long long device, const void *host, size_t size) {
    if (!(device & DEVICE_BIT)) return 1;
    if (standin_copy_error) return standin_copy_error;
    standin_copies++;
    memcpy((void *)(device & ~DEVICE_BIT), host, size);
    return 0;
}

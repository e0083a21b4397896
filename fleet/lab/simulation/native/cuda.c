/* libcuda.so.1 of a simulated host: it is there, and says that no program will ever compute with it. */
#define NO_DEVICE 100

int cuInit(unsigned int flags);
int cuDriverGetVersion(int *version);

int cuInit(unsigned int flags)
{
    (void)flags;
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = CUDA_VERSION;
    return 0;
}

// A race on purpose: two threads add to one counter. ThreadSanitizer must report it (cmake/tsan.cmake).
#include <omp.h>

#include <cstdio>

int main() {
  long counter = 0;
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 100000; ++i) counter += i;
  std::printf("%ld\n", counter);
}

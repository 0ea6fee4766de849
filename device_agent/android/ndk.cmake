# Toolchain file of the presets android-ABI: the NDK's own, once it is known where the NDK is.
# The lowest API level and 16 KB pages are what zig.cmake has, too.
if(NOT EXISTS "$ENV{ANDROID_NDK_HOME}/build/cmake/android.toolchain.cmake")
  message(FATAL_ERROR "ANDROID_NDK_HOME is \"$ENV{ANDROID_NDK_HOME}\", where there is no Android NDK. "
    "Set it to an NDK's folder, or build without one: "
    "python -m nnapi_prof.device.build --abi ${ANDROID_ABI}")
endif()
set(ANDROID_PLATFORM 27 CACHE STRING "")
set(ANDROID_SUPPORT_FLEXIBLE_PAGE_SIZES ON CACHE BOOL "")
include("$ENV{ANDROID_NDK_HOME}/build/cmake/android.toolchain.cmake")

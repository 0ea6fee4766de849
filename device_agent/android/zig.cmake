# Toolchain file: Android executables by zig, without an NDK.
#
#   cmake -S device_agent -B BUILD --toolchain android/zig.cmake -DNP_ZIG=ZIG -DNP_ANDROID_ABI=ABI
#
# ZIG is the executable of the Python package ziglang, ABI one of arm64-v8a, armeabi-v7a, x86_64.
# clang and lld are called by name, and not through `zig cc`: that has no libc for Android, and adds
# libraries of its own to a link that would take the place of the device's malloc and memcpy.
# Code is generated for Android's own triple, headers are musl's. Where the two disagree about a
# function, symbols.txt says so; see README.md.
set(NP_ZIG "" CACHE FILEPATH "zig's executable")
set(NP_ANDROID_ABI "arm64-v8a" CACHE STRING "arm64-v8a, armeabi-v7a or x86_64")
set(NP_ANDROID_API 27 CACHE STRING "The lowest API level that can run the result")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES NP_ZIG NP_ANDROID_ABI NP_ANDROID_API)
if(NOT NP_ZIG)
  message(FATAL_ERROR "NP_ZIG must name zig's executable (of the Python package ziglang)")
endif()
get_filename_component(NP_ZIG_LIB "${NP_ZIG}" DIRECTORY)
string(APPEND NP_ZIG_LIB "/lib")

if(NP_ANDROID_ABI STREQUAL "arm64-v8a")
  set(CMAKE_SYSTEM_PROCESSOR aarch64)
  set(np_triple aarch64-linux-android)
  set(np_musl aarch64)
  # Its helper functions would come from a library that is not linked.
  set(np_flags -mno-outline-atomics)
  set(np_interpreter /system/bin/linker64)
elseif(NP_ANDROID_ABI STREQUAL "armeabi-v7a")
  set(CMAKE_SYSTEM_PROCESSOR armv7-a)
  set(np_triple armv7a-linux-androideabi)
  set(np_musl arm)
  # softfp: NEON inside, floating-point arguments in integer registers.
  set(np_flags -mthumb -mfpu=neon -mfloat-abi=softfp)
  set(np_interpreter /system/bin/linker)
elseif(NP_ANDROID_ABI STREQUAL "x86_64")
  set(CMAKE_SYSTEM_PROCESSOR x86_64)
  set(np_triple x86_64-linux-android)
  set(np_musl x86_64)
  set(np_flags -march=x86-64-v2) # SSE 4.2 and popcnt: Android's ABI promises them
  set(np_interpreter /system/bin/linker64)
else()
  message(FATAL_ERROR "NP_ANDROID_ABI is ${NP_ANDROID_ABI}: arm64-v8a, armeabi-v7a, x86_64 exist")
endif()

# Not "Android": that is CMake's word for the NDK and its files.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY) # nothing but the agent is ever linked
set(CMAKE_SKIP_RPATH ON) # the libraries are the device's
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
foreach(language C CXX ASM)
  set(CMAKE_${language}_COMPILER "${NP_ZIG}" clang)
endforeach()

set(np_headers
  -nostdinc
  -isystem ${NP_ZIG_LIB}/include
  -isystem ${NP_ZIG_LIB}/libc/include/${np_musl}-linux-musl
  -isystem ${NP_ZIG_LIB}/libc/include/generic-musl)
foreach(cpu ${np_musl} x86)
  # zig has one folder for both x86.
  if(IS_DIRECTORY ${NP_ZIG_LIB}/libc/include/${cpu}-linux-any)
    list(APPEND np_headers -isystem ${NP_ZIG_LIB}/libc/include/${cpu}-linux-any)
    break()
  endif()
endforeach()
list(APPEND np_headers -isystem ${NP_ZIG_LIB}/libc/include/any-linux-any)
# For the C++ in XNNPACK, which uses templates alone: libc++ as zig configures it for musl.
set(np_cxx_headers
  -nostdinc++
  -isystem ${NP_ZIG_LIB}/libcxx/include
  -D_LIBCPP_ABI_VERSION=1
  -D_LIBCPP_ABI_NAMESPACE=__1
  -D_LIBCPP_HAS_THREADS=1
  -D_LIBCPP_HAS_MUSL_LIBC=1
  -D_LIBCPP_HAS_MONOTONIC_CLOCK=1
  -D_LIBCPP_HAS_TERMINAL=1
  -D_LIBCPP_HAS_FILESYSTEM=1
  -D_LIBCPP_HAS_RANDOM_DEVICE=1
  -D_LIBCPP_HAS_LOCALIZATION=1
  -D_LIBCPP_HAS_UNICODE=1
  -D_LIBCPP_HAS_WIDE_CHARACTERS=1
  -D_LIBCPP_HAS_TIME_ZONE_DATABASE=0
  -D_LIBCPP_HAS_VENDOR_AVAILABILITY_ANNOTATIONS=0
  -D_LIBCPP_PSTL_BACKEND_SERIAL
  -D_LIBCPP_HARDENING_MODE=_LIBCPP_HARDENING_MODE_NONE
  -D_LIBCPP_ASSERTION_SEMANTIC_DEFAULT=_LIBCPP_ASSERTION_SEMANTIC_IGNORE
  -fno-exceptions
  -fno-rtti)
# bcmp: clang makes it of memcmp, and bionic has it as an inline function alone.
set(np_common --target=${np_triple}${NP_ANDROID_API} ${np_flags} -fPIC -ffunction-sections
  -fdata-sections -funwind-tables -fasynchronous-unwind-tables -fstack-protector-strong
  -fno-builtin-bcmp)
list(JOIN np_common " " np_common)
list(JOIN np_headers " " np_headers)
list(JOIN np_cxx_headers " " np_cxx_headers)
set(CMAKE_C_FLAGS_INIT "${np_common} ${np_headers}")
set(CMAKE_CXX_FLAGS_INIT "${np_common} ${np_cxx_headers} ${np_headers}")
set(CMAKE_ASM_FLAGS_INIT "${np_common} ${np_headers}")

# zig brings the archiver and the linker along, as commands of the one executable.
foreach(language C CXX ASM)
  set(CMAKE_${language}_ARCHIVE_CREATE "\"${NP_ZIG}\" ar qc <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_APPEND "\"${NP_ZIG}\" ar q <TARGET> <OBJECTS>")
  set(CMAKE_${language}_ARCHIVE_FINISH "\"${NP_ZIG}\" ranlib <TARGET>")
  set(CMAKE_${language}_LINKER_WRAPPER_FLAG "")
  set(CMAKE_${language}_LINKER_WRAPPER_FLAG_SEP "")
endforeach()

# -z nocopyreloc, text: what bionic's linker does not do shall fail here, not on the device.
# 16 KB pages: some devices of Android 15 and later have them.
set(np_link "-z noexecstack -z relro -z now -z text -z nocopyreloc -z max-page-size=16384")
string(APPEND np_link " -z common-page-size=16384 --hash-style=gnu --build-id=sha1 --gc-sections")
string(APPEND np_link " --icf=safe --exclude-libs=ALL --no-undefined --fatal-warnings --as-needed")
string(APPEND np_link " -O2")
set(CMAKE_C_LINK_EXECUTABLE "\"${NP_ZIG}\" ld.lld -pie ${np_link} --dynamic-linker=${np_interpreter} <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
set(CMAKE_C_CREATE_SHARED_LIBRARY "\"${NP_ZIG}\" ld.lld -shared ${np_link} -soname <TARGET_SONAME> <LINK_FLAGS> <OBJECTS> -o <TARGET> <LINK_LIBRARIES>")
foreach(variable triple musl flags headers cxx_headers common link interpreter)
  unset(np_${variable})
endforeach()

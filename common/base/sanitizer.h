// Whether this is built with a sanitizer that brings an allocator of its own, with other limits and no settings.
#ifndef TESSERA_COMMON_BASE_SANITIZER_H_
#define TESSERA_COMMON_BASE_SANITIZER_H_

namespace tessera {

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TESSERA_HAS_SANITIZER 1
#endif
#endif

#ifdef TESSERA_HAS_SANITIZER
inline constexpr bool kHasSanitizer = true;
#undef TESSERA_HAS_SANITIZER
#else
inline constexpr bool kHasSanitizer = false;
#endif

}  // namespace tessera

#endif  // TESSERA_COMMON_BASE_SANITIZER_H_
